"""HTTP as the network delivers it, below what a client library lets one write: odd headers, odd frames."""

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.helpers.live_server import PATIENCE, LiveServer
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = pytest.mark.e2e

BODY = b'{"prompt": "hi", "max_tokens": 1}'
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    model = make_model_dir(tmp_path_factory.mktemp("models") / "tiny")
    with LiveServer(str(model), "--threads", "1", "--kv-cache-memory", "64MiB") as live:
        yield live.wait_ready()


def send(server: LiveServer, *parts: bytes) -> bytes:
    """What comes back for these bytes until the server hangs up or the answer is complete."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        for part in parts:
            connection.sendall(part)
        while not (answer.endswith(b"}") or answer.endswith(b"received.")) and (more := connection.recv(65536)):
            answer += more
    return answer


def test_headers_without_end_are_refused_and_not_kept(server: LiveServer) -> None:
    """A single client once made the server collect hundreds of megabytes, ever more slowly."""
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Endless: ")
        with suppress(ConnectionError):
            while sent < 32 * 2**20:
                sent += connection.send(b"a" * 2**16)
    assert sent < 32 * 2**20, "the server took all of it"
    assert server.request("GET", "/health").status == 200


def test_an_upgrade_that_is_not_served_is_ignored_and_the_body_is_read(server: LiveServer) -> None:
    """Java's client offers HTTP/2 beside every first request; its body was lost."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    assert send(server, POST + upgrade + LENGTH + b"\r\n", BODY).startswith(b"HTTP/1.1 200 ")


def test_a_body_in_chunks_of_a_byte_is_a_body(server: LiveServer) -> None:
    chunks = [b"1\r\n%c\r\n" % byte for byte in BODY]
    assert send(server, POST + b"Transfer-Encoding: chunked\r\n\r\n", *chunks, b"0\r\n\r\n").startswith(
        b"HTTP/1.1 200 "
    )


@pytest.mark.parametrize(
    "wrong",
    [
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
    ],
)
def test_a_length_that_makes_no_sense_is_a_400(server: LiveServer, wrong: bytes) -> None:
    assert send(server, POST + wrong).startswith(b"HTTP/1.1 400 ")
