"""schemathesis against /openapi.json: thousands of good and bad requests, no 5xx, nothing outside the description."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.live_server import LiveServer

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
WANTED = 2000  # cases; how many an operation gets is up to schemathesis
PER_OPERATION = 30


@pytest.fixture
def short(model_dir: Path) -> Iterator[LiveServer]:
    """A server whose answers can't get long."""
    small = ("--threads", "1", "--kv-cache-memory", "64MiB", "--max-model-len", "64")
    with LiveServer(str(model_dir), *small, "--log-level", "warning") as live:
        yield live.wait_ready()


def test_generated_requests_find_nothing(short: LiveServer, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis")
    options = ["--checks", ",".join(CHECKS), "--seed", "1", "--no-color", "--continue-on-failure"]
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{short.url}/openapi.json", *options]
    run = subprocess.run(
        [*command, "--max-examples", str(PER_OPERATION)], cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert run.returncode == 0, run.stdout[-8000:]
    found = re.search(r"([0-9]+) generated", run.stdout)
    assert found
    assert int(found[1]) >= WANTED, run.stdout[-2000:]
    assert short.request("GET", "/ready").status == 200
    assert not [line for line in short.errors if "Traceback" in line]
