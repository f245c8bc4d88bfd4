"""What the tests of the benchmarks share: a server to measure."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.helpers.tiny_http import TinyServer

Start = Callable[[TinyServer], Awaitable[TinyServer]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Opens a TinyServer on a free port of this machine and fills in its url."""
    running: list[asyncio.Server] = []

    async def open_port(tiny: TinyServer) -> TinyServer:
        server = await asyncio.start_server(tiny.serve, "127.0.0.1", 0)
        running.append(server)
        tiny.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return tiny

    yield open_port
    for server in running:
        server.close()
        await server.wait_closed()
