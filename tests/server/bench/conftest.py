"""A server to measure, and connections of any bad manners."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.helpers.tiny_http import Start, opening


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Opens a TinyServer on a free port."""
    async with opening() as open_port:
        yield open_port


Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def peer() -> AsyncIterator[Callable[[Behave], Awaitable[str]]]:
    """Listens on a free port and treats each connection as the test says; returns the url."""
    running: list[asyncio.Server] = []

    async def open_port(behave: Behave) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await behave(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        running.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield open_port
    for server in running:
        server.close()
        await server.wait_closed()
