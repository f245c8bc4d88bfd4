"""Streams that nobody reads, over real sockets: what is held for them is bounded, and neighbours notice nothing."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from server.connections import Connection
from server.engine.submission import MAX_BACKLOG
from tests.helpers.api_world import World, make_world, says
from tests.helpers.asgi import call

PATH = "/v1/completions"
LARGE = {"prompt": "hi", "n": 16, "max_tokens": 190, "logprobs": 20, "stream": True}
ENTRIES = 16 * 190 * 21


@asynccontextmanager
async def served(world: World, kind: type[Connection] = Connection) -> AsyncIterator[int]:
    """Its port. The system holds little for a connection: by itself it would hold a few megabytes."""
    config = uvicorn.Config(world.app, http=kind, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        running = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running


@asynccontextmanager
async def asked(port: int, body: dict[str, Any]) -> AsyncIterator[socket.socket]:
    """A connection that has asked this, with little room for the answer; it reads nothing by itself."""
    with socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.setblocking(False)
        loop, content = asyncio.get_running_loop(), json.dumps(body).encode()
        await loop.sock_connect(opened, ("127.0.0.1", port))
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
        await loop.sock_sendall(opened, head.encode() + content)
        yield opened


async def rest_of(opened: socket.socket) -> bytes:
    """All that comes, to the end."""
    parts = []
    while part := await asyncio.get_running_loop().sock_recv(opened, 2**16):
        parts.append(part)
    return b"".join(parts)


async def until(holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """Of the backlog, small enough to be passed soon."""
    monkeypatch.setattr("server.engine.submission.MAX_BACKLOG", ENTRIES // 4)
    return ENTRIES // 4


async def test_a_stream_that_is_not_read_is_ended_where_too_much_waits_and_neighbours_go_on(limit: int) -> None:
    assert limit < MAX_BACKLOG
    world = make_world(says("x" * 190, finish="length"), max_sequences=16)
    neighbour = {"prompt": "you", "max_tokens": 190, "seed": 1}
    alone = (await call(world.app, "POST", PATH, neighbour)).json()["choices"]
    async with served(world) as port, asked(port, LARGE) as silent:
        await until(lambda: len(world.service.submitted) == 17)
        assert (await call(world.app, "POST", PATH, neighbour)).json()["choices"] == alone
        await until(lambda: world.service.cancelled)
        assert len(world.service.cancelled) == 16
        assert world.service.in_flight.idle.is_set()
        blocks = (await rest_of(silent)).decode()
    assert "data: [DONE]" in blocks
    assert '"code":"client_too_slow"' in blocks
    assert '"finish_reason":"length"' not in blocks
    assert blocks.count('"text":"x') < 16 * 190, "what came before the error is less than the whole"


async def test_a_stream_that_is_read_late_but_not_too_late_is_whole() -> None:
    world = make_world(says("x" * 190, finish="length"), max_sequences=16)
    async with served(world) as port, asked(port, LARGE) as late:
        await until(lambda: world.service.in_flight.idle.is_set() and world.service.submitted)
        blocks = (await rest_of(late)).decode()
    assert blocks.count('"finish_reason":"length"') == 16
    assert "client_too_slow" not in blocks


class Hasty(Connection):
    stall_seconds = 0.1


async def test_who_reads_nothing_at_all_is_hung_up_on_and_who_reads_slowly_is_not() -> None:
    world = make_world(says("x" * 190, finish="length"), max_sequences=16)
    async with served(world, Hasty) as port, asked(port, LARGE) as slow, asked(port, LARGE) as silent:
        received = b""
        while part := await asyncio.get_running_loop().sock_recv(slow, 2**14):
            received += part
            await asyncio.sleep(0.002)
        assert received.count(b'"finish_reason":"length"') == 16
        await until(lambda: not world.serving.running)
        assert b"[DONE]" not in await rest_of(silent)
    assert world.figure("kvell_requests_total", endpoint="completions", outcome="cancelled") == 1
