"""Whatever a peer does, a request ends in an outcome that says what it was, with the times as they were."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from server.bench.client import Client, sse_data
from server.bench.http import Address, Pool
from server.bench.outcome import Outcome
from server.bench.workload import Lengths, Workload
from tests.helpers.tiny_http import TinyServer, response, stream

SMALL = Workload(Lengths(10, 10), Lengths(4, 4), ignore_eos=True)
USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}},
}
DONE = "data: [DONE]\n\n"


def piece(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": None}]}


GOOD = stream(": ping\n\n", piece("one"), piece(""), piece(" two three"), USAGE, DONE)


def client_of(
    url: str, *, workload: Workload = SMALL, timeout_s: float = 20.0, clock: Callable[[], float] = lambda: 1.0
) -> Client:
    return Client(Pool(Address.parse(url)), workload, "tiny", timeout_s=timeout_s, clock=clock)


async def outcome_of(start: Any, answer: bytes) -> Outcome:
    tiny = await start(TinyServer(lambda path, body: answer))
    return await client_of(tiny.url).ask(Outcome(0, due=0.0))


async def split(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_events_are_found_however_the_bytes_arrive(size: int, newline: str) -> None:
    """U+2028 counts as the end of a line for Python's splitlines, but not in server-sent events."""
    lines = [": ping", "", 'data: {"a": "x\u2028é"}', "", "event: x", "data:2", "", "data: [DONE]", "", ""]
    found = [data.decode() async for data in sse_data(split(newline.join(lines).encode(), size))]
    assert found == ['{"a": "x\u2028é"}', "2", "[DONE]"]


async def test_a_good_stream_is_timed_piece_by_piece(start: Any) -> None:
    """Due at 7, sent at 10, head out at 11, answered at 12, three events at 13, 14, 15 and usage at 16, over at 17."""
    tiny = await start(TinyServer(lambda path, body: GOOD))
    ticks = itertools.count(10.0)
    client = client_of(tiny.url, clock=lambda: next(ticks))
    outcome = await client.ask(Outcome(0, due=7.0))
    assert (outcome.kind, outcome.detail) == ("ok", "")
    assert (outcome.sent, outcome.head_sent, outcome.answered) == (10.0, 11.0, 12.0)
    assert (outcome.pieces, outcome.ended) == ([13.0, 15.0], 17.0)
    assert (outcome.first_s, outcome.gaps, outcome.took_s) == (6.0, [2.0], 10.0)
    assert (outcome.input_tokens, outcome.cached_tokens, outcome.output_tokens) == (11, 8, 3)
    assert (client.tally.in_flight, client.tally.pieces, dict(client.tally.kinds)) == (0, 2, {"ok": 1})


@pytest.mark.parametrize(
    ("answer", "kind", "detail"),
    [
        (response(b'{"error": "busy"}', status="503 Service Unavailable"), "503", "HTTP 503: busy"),
        (response(b'{"error": {"message": "12 of 9.5"}}', status="503 No"), "503", "HTTP 503: N of N"),
        (response(b"<html>", status="503 No"), "503", "HTTP 503: <html>"),
        (response(b"{}", status="429 Too Many Requests"), "429", "HTTP 429"),
        (response(b"{}", status="500 Oops"), "other status", "HTTP 500"),
        (stream(piece("a")), "cut stream", "without [DONE]"),
        (stream(piece("a"), {"error": {"message": "the engine died"}}, DONE), "cut stream", "the engine died"),
        (stream(piece("a"), {"error": "it died"}, DONE), "cut stream", "it died"),
        (stream("data: {oops\n\n", DONE), "cut stream", "can't be read"),
        (stream("data: 7\n\n", DONE), "cut stream", "can't be read"),
        (b"", "reset", "ended before an answer"),
        (stream(piece("a"), DONE)[:-9], "cut stream", "in the middle"),
        (b"hello\r\n\r\n", "reset", "no answer in HTTP"),
    ],
    ids=[
        "503",
        "503 numbers",
        "503 page",
        "429",
        "500",
        "no end",
        "error",
        "error text",
        "bad json",
        "no object",
        "nothing",
        "cut",
        "no http",
    ],
)
async def test_every_kind_of_failure_has_its_name(start: Any, answer: bytes, kind: str, detail: str) -> None:
    outcome = await outcome_of(start, answer)
    assert outcome.kind == kind
    assert detail in outcome.detail


@pytest.mark.parametrize(
    ("told", "expected"), [("3", 3.0), ("0.5", 0.5), ("Sun, 06 Nov", None), ("-1", None), ("inf", None)]
)
async def test_a_refusal_s_time_to_come_back_is_read(start: Any, told: str, expected: float | None) -> None:
    answer = f"HTTP/1.1 503 No\r\nRetry-After: {told}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
    assert (await outcome_of(start, answer)).retry_after_s == expected


async def test_a_server_that_is_not_there_is_a_reset() -> None:
    outcome = await client_of("http://127.0.0.1:1").ask(Outcome(0, due=0.0))
    assert (outcome.kind, outcome.detail[:13]) == ("reset", "no connection")


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"], ids=["silent", "half"])
async def test_one_that_never_ends_its_answer_times_out(peer: Any, said: bytes) -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read(-1)  # until the client hangs up

    outcome = await client_of(await peer(behave), timeout_s=0.1).ask(Outcome(0, due=0.0))
    assert (outcome.kind, outcome.detail) == ("timeout", "no end after 0.1 s")


async def test_an_idle_connection_that_the_server_closed_is_no_failure(peer: Any) -> None:
    """The first connection brings an answer, and dies when it is asked again; a new one answers."""
    asked: list[int] = []

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"true}")
        asked.append(len(asked))
        writer.write(GOOD if len(asked) == 2 else GOOD.replace(b"Connection: close\r\n", b""))
        if len(asked) == 1:
            await reader.readuntil(b"\r\n\r\n")  # the second request's head, then hang up

    client = client_of(await peer(behave))
    kinds = [(await client.ask(Outcome(number, due=0.0))).kind for number in range(2)]
    assert kinds == ["ok", "ok"]
    assert len(asked) == 2


async def test_without_usage_pieces_are_counted(start: Any) -> None:
    assert (await outcome_of(start, stream(piece("a"), piece("b"), DONE))).output_tokens == 2


async def test_chat_deltas_count_and_the_role_does_not(start: Any) -> None:
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
    thought = {"choices": [{"delta": {"reasoning_content": "hm"}}]}
    text = {"choices": [{"delta": {"content": "hi"}}]}
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": None}
    assert len((await outcome_of(start, stream(role, thought, text, text, last, DONE))).pieces) == 3


async def test_what_is_sent_is_the_workload_s_body(start: Any) -> None:
    tiny = await start(TinyServer(lambda path, body: GOOD))
    await client_of(tiny.url).ask(Outcome(5, due=0.0))
    sent = json.loads(b"".join(SMALL.body(5, "tiny")))
    assert tiny.seen == [{"path": "/v1/completions", **sent}]
