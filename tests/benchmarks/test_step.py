"""The step benchmark on a tiny model: its table, its JSON, and that its parts add up."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.checkpoints import tiny_hf
from tests.helpers.native_teams import native_team

ROOT = Path(__file__).resolve().parent.parent.parent


def run(model: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """Everything printed, and the JSON of the last line."""
    command = [
        sys.executable,
        str(ROOT / "benchmarks/step.py"),
        str(model),
        "--cache-mib",
        "8",
        "--threads",
        "1",
        *options,
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_the_parts_of_a_step_are_told_apart(tmp_path: Path, backend: str) -> None:
    if backend == "native":
        native_team(1)
    options = ("--backend", backend, "--sequences", "1,3", "--prompt", "20", "--new", "5", "--operations")
    printed, report = run(tiny_hf(tmp_path / "model", vocab_size=40), *options)
    assert report["backend"] == backend
    assert [each["sequences"] for each in report["results"]] == [1, 3]
    for each in report["results"]:
        assert each["steps"] == 5
        assert 0 < each["interpreter_ms"] <= each["step_ms"]
        assert (each["native_ms"] > 0) == (backend == "native")
        assert bool(each["operations_ms"]) == (backend == "native")
    assert ("add norm" in printed) == (backend == "native")
