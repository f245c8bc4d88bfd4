"""A tiny HTTP server for tests of clients: it answers with the very bytes that a test tells it to."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Answer = Callable[[str, dict[str, Any]], bytes]


def response(body: bytes, *, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """A whole HTTP response."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def stream(*events: dict[str, Any] | str) -> bytes:
    """Server-sent events as a whole response; a string is sent as it is."""
    lines = [event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n" for event in events]
    return response("".join(lines).encode(), kind="text/event-stream")


@dataclass
class TinyServer:
    """Lists one model, "tiny", and answers everything else with `answer(path, JSON)`.

    together   the first so many requests are held until all of them are there
    seen       what was asked for; most: the largest number of requests at once
    """

    answer: Answer
    together: int = 1
    url: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)
    most: int = 0
    _active: int = 0
    _all_there: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lengths = [line.split(":")[1] for line in head.split("\r\n") if line.lower().startswith("content-length")]
        body = json.loads(await reader.readexactly(int(lengths[0]))) if lengths else {}
        path = head.split()[1]
        if path == "/v1/models":
            writer.write(response(b'{"data": [{"id": "tiny"}]}'))
        else:
            writer.write(await self._answered(path, body))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def _answered(self, path: str, body: dict[str, Any]) -> bytes:
        self.seen.append({"path": path, **body})
        self._active += 1
        self.most = max(self.most, self._active)
        if self._active >= self.together:
            self._all_there.set()
        async with asyncio.timeout(30):
            await self._all_there.wait()
        self._active -= 1
        return self.answer(path, body)


Start = Callable[[TinyServer], Awaitable[TinyServer]]


@asynccontextmanager
async def opening() -> AsyncIterator[Start]:
    """Inside, what it gives opens a TinyServer on a free port of this machine and fills in its url."""
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
