"""Who is let into a real server: keys of both sources, the file read again, https."""

import signal
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.certificates import make_certificate
from tests.helpers.live_server import LiveServer
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = pytest.mark.e2e

SMALL = ("--threads", "1", "--kv-cache-memory", "64MiB")
KEYS = "# ours\nteam-a: first-key\n\n  second-key  \n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_dir(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(KEYS)
    return file


@pytest.fixture(scope="module")
def locked(model: Path, keys_file: Path) -> Iterator[LiveServer]:
    """A server with a key from the environment and two from a file."""
    with LiveServer(str(model), *SMALL, "--api-key-file", str(keys_file), env={"KVELL_API_KEY": "from-env"}) as live:
        live.headers = {"Authorization": "Bearer from-env"}
        yield live.wait_ready()


@pytest.mark.parametrize("key", ["from-env", "first-key", "second-key"])
def test_each_key_opens(locked: LiveServer, key: str) -> None:
    assert locked.request("GET", "/v1/models", Authorization=f"Bearer {key}").status == 200


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/nowhere"])
def test_nothing_opens_without_a_key(locked: LiveServer, path: str) -> None:
    assert locked.request("GET", path).status == 401
    assert locked.request("GET", path, Authorization="Bearer # ours").status == 401


def test_probes_need_no_key(locked: LiveServer) -> None:
    assert [locked.request("GET", path).status for path in ("/health", "/ready")] == [200, 200]


def test_the_printed_line_has_a_place_for_the_key_and_not_the_key(locked: LiveServer) -> None:
    said = "\n".join(locked.output + locked.errors)
    assert "Bearer $KVELL_API_KEY" in said
    assert "from-env" not in said
    assert "first-key" not in said


def read_again(locked: LiveServer, said: str) -> None:
    """SIGHUP, until the server has said so."""
    before = len(locked.errors)
    locked.signal(signal.SIGHUP)
    locked.until(lambda: any(said in line for line in locked.errors[before:]), "it said nothing about the keys")


def test_keys_are_read_again_on_sighup_and_a_broken_file_changes_nothing(locked: LiveServer, keys_file: Path) -> None:
    def status(key: str) -> int:
        return locked.request("GET", "/v1/models", x_api_key=key).status

    keys_file.write_text("team-a: third-key\n")
    read_again(locked, "read the keys again: 2")
    assert [status(key) for key in ("first-key", "second-key", "third-key", "from-env")] == [401, 401, 200, 200]
    keys_file.write_text("team-a: k nonsense\n")
    read_again(locked, "the keys stay as they were")
    assert [status(key) for key in ("third-key", "k")] == [200, 401]


def test_https_with_a_certificate(model: Path, tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    files = ("--tls-certfile", str(made.cert), "--tls-keyfile", str(made.key))
    with LiveServer(str(model), *SMALL, *files) as live:
        url = live.wait_ready().url
        assert url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(made.cert))
        with urllib.request.urlopen(f"{url}/v1/models", context=trusting, timeout=60) as answer:
            assert answer.status == 200
