"""One server with a tiny model for other projects' clients. Each is skipped by name where it isn't installed.

`make test-clients` runs these in an environment of their own, and the server in another (KVELL_TEST_PYTHON).
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.live_server import PYTHON, ROOT, LiveServer, environment

MAKE = "import sys; from pathlib import Path; from tests.helpers.tiny_model_dir import make_model_dir as make; "


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    subprocess.run([PYTHON, "-c", MAKE + "make(Path(sys.argv[1]))", path], cwd=ROOT, env=environment(), check=True)
    return path


@pytest.fixture(scope="session")
def server(model_dir: Path) -> Iterator[LiveServer]:
    exact = ("--dtype", "float64", "--kv-cache-dtype", "float64")
    with LiveServer(str(model_dir), *exact, "--threads", "1", "--kv-cache-memory", "64MiB") as live:
        yield live.wait_ready()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What these projects warn about is theirs."""
    for item in items:
        if "tests/clients" in item.path.as_posix():
            for mark in (pytest.mark.clients, pytest.mark.e2e, pytest.mark.filterwarnings("ignore")):
                item.add_marker(mark)
