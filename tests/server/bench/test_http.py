"""Answers are read right however their bytes arrive, and what is no whole answer is said so."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from server.bench.http import Address, Connection, HTTPFailed, Pool

Peer = Callable[[Any], Awaitable[str]]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello, world"
ENDLESS = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello, world"
AFTER_100 = b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED
EMPTY = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


def sends(data: bytes, size: int) -> Any:
    """Reads a head, then answers in pieces of `size` bytes."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for start in range(0, len(data), size):
            writer.write(data[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)

    return behave


async def got(url: str) -> tuple[int, bytes, Connection]:
    pool = Pool(Address.parse(url))
    connection = await pool.take()
    try:
        connection.send([pool.head("GET", "/", 0)])
        status = await connection.head()
        return status, b"".join([part async for part in connection.body()]), connection
    finally:
        connection.close()


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("data", [CHUNKED, SIZED, ENDLESS, AFTER_100], ids=["chunked", "sized", "endless", "after 100"])
async def test_a_body_is_whole_however_its_bytes_arrive(peer: Peer, data: bytes, size: int) -> None:
    status, body, _ = await got(await peer(sends(data, size)))
    assert (status, body) == (200, b"hello, world")


async def test_an_empty_body_is_one(peer: Peer) -> None:
    assert (await got(await peer(sends(EMPTY, 7))))[:2] == (204, b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ended before an answer"),
        (b"HTTP/1.1 200", "ended before an answer"),
        (CHUNKED[:-9], "in the middle"),
        (SIZED[:-1], "in the middle"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "without a length"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "does not end"),
    ],
    ids=["nothing", "half a head", "half a chunk", "half a body", "no http", "bad chunk", "long head"],
)
async def test_what_is_no_whole_answer_is_said_so(peer: Peer, data: bytes, reason: str) -> None:
    url = await peer(sends(data, 1 << 20))
    with pytest.raises(HTTPFailed, match=reason):
        await got(url)


async def test_nobody_listening_is_said_so() -> None:
    with pytest.raises(HTTPFailed, match="no connection"):
        await got("http://127.0.0.1:1")


async def test_an_early_answer_is_read_while_the_body_is_still_being_sent(peer: Peer) -> None:
    """The peer never reads more than the head, and the body is larger than any socket's buffer."""
    url = await peer(sends(b"HTTP/1.1 503 No\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n", 1000))
    pool = Pool(Address.parse(url))
    connection = await pool.take()
    connection.send([pool.head("POST", "/", 64 << 20), bytes(64 << 20)])
    async with asyncio.timeout(20):
        assert await connection.head() == 503
    assert connection.headers["retry-after"] == "2"
    connection.close()


async def test_a_connection_is_used_again_only_when_its_answer_is_whole_and_the_server_keeps_it(peer: Peer) -> None:
    opened = 0

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while await reader.read(1000):
            writer.write(SIZED)

    pool = Pool(Address.parse(await peer(behave)))

    async def ask(*, read: bool) -> None:
        connection = await pool.take()
        connection.send([pool.head("GET", "/", 0)])
        await connection.head()
        if read:
            assert [part async for part in connection.body()]
        pool.give_back(connection)

    for read, expected in ((True, 1), (True, 1), (False, 1), (True, 2)):
        await ask(read=read)
        assert opened == expected
    pool.close()


async def test_one_whose_answer_was_not_read_to_its_end_is_not_used_again(peer: Peer) -> None:
    """The body is still to come."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SIZED[:-12])
        await reader.read(-1)  # until the client hangs up

    pool = Pool(Address.parse(await peer(behave)))
    connection = await pool.take()
    connection.send([pool.head("GET", "/", 0)])
    assert await connection.head() == 200
    assert not connection.reusable
    pool.give_back(connection)


async def test_one_that_the_server_closes_is_not_used_again(peer: Peer) -> None:
    assert not (await got(await peer(sends(ENDLESS, 99))))[2].reusable


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", Address("127.0.0.1", 8000, False, "")),
        ("https://example.org/llm/v1/", Address("example.org", 443, True, "/llm")),
        ("http://[::1]:81/v1", Address("::1", 81, False, "")),
    ],
)
def test_an_address_is_read(url: str, expected: Address) -> None:
    assert Address.parse(url) == expected


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        Address.parse(url)


def test_a_head_says_what_is_needed() -> None:
    pool = Pool(Address.parse("http://127.0.0.1:81/x"), [("authorization", "Bearer k")])
    head = pool.head("POST", "/v1/completions", 5).decode()
    assert head.startswith("POST /x/v1/completions HTTP/1.1\r\nhost: 127.0.0.1:81\r\n")
    assert "authorization: Bearer k\r\n" in head
    assert head.endswith("content-length: 5\r\n\r\n")
    assert "content-length" not in pool.head("GET", "/", 0).decode()
