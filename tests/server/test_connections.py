"""Connections that ask nothing, ask slowly, or ask nonsense, against uvicorn itself."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from server.connections import Connection

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers 200 once it has the whole body."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Quick(Connection):
    head_seconds = 0.3
    stall_seconds = 0.3
    max_connections = 3


@pytest.fixture
async def port() -> AsyncIterator[int]:
    config = uvicorn.Config(application, port=0, http=Quick, lifespan="off", log_config=None, timeout_keep_alive=1)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await running


class Client:
    """One open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, said: bytes) -> None:
        self._writer.write(said)

    async def rest(self) -> bytes:
        """Until the server hangs up."""
        return await self._reader.read()

    async def answer(self) -> bytes:
        """Up to the end of what `application` says."""
        return await self._reader.readuntil(b"ok")

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


Opens = Callable[..., Awaitable[Client]]


@pytest.fixture
async def opens(port: int) -> AsyncIterator[Opens]:
    clients: list[Client] = []

    async def open_one(said: bytes = b"") -> Client:
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", port)))
        clients[-1].say(said)
        return clients[-1]

    yield open_one
    for client in clients:
        await client.close()


async def test_a_connection_that_asks_nothing_is_closed(opens: Opens) -> None:
    assert await (await opens()).rest() == b""


def expect_timeout(answered: bytes) -> None:
    head, _, body = answered.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert json.loads(body)["error"]["code"] == "request_timeout"


async def test_a_connection_that_has_nothing_more_to_ask_is_closed_without_a_word(opens: Opens) -> None:
    client = await opens(HEAD + b"\r\n")
    assert (await client.answer()).startswith(b"HTTP/1.1 200 OK")
    assert await client.rest() == b""


async def test_a_head_that_never_ends_is_closed(opens: Opens) -> None:
    client = await opens(HEAD)
    client.say(b"X-More: 1\r\n")
    expect_timeout(await client.rest())


async def test_a_second_head_has_no_longer_than_the_first(opens: Opens) -> None:
    client = await opens(HEAD + b"\r\n")
    assert (await client.answer()).startswith(b"HTTP/1.1 200 OK")
    client.say(HEAD)
    expect_timeout(await client.rest())


async def test_a_slow_body_is_not_the_connection_s_business(opens: Opens) -> None:
    client = await opens(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.6):
            await client.rest()
    client.say(b"b")
    assert (await client.answer()).startswith(b"HTTP/1.1 200 OK")


NONSENSE = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\r\n\r\n", b"hello\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]


LONG = HEAD + b"X-Long: " + b"a" * 100_000


@pytest.mark.parametrize("nonsense", [*NONSENSE, LONG], ids=["tls", "text", "host", "long"])
async def test_what_is_no_http_gets_the_api_s_own_error(opens: Opens, nonsense: bytes) -> None:
    head, _, body = (await (await opens(nonsense)).rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert json.loads(body)["error"]["code"] == "invalid_http"


async def test_more_connections_than_allowed_are_refused_by_name(opens: Opens) -> None:
    held = [await opens(HEAD) for _ in range(3)]
    head, _, body = (await (await opens()).rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nretry-after: 5" in head
    assert json.loads(body)["error"]["code"] == "overloaded"
    for client in held:
        client.say(b"\r\n")
        assert (await client.answer()).startswith(b"HTTP/1.1 200 OK")
