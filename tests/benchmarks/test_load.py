"""The load generator sends what it says, survives bad answers, and sums up right."""

import io
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from rich.console import Console

from benchmarks.load import (
    Outcome,
    Workload,
    measure,
    percentile,
    run_load,
    run_request,
    show,
    spread_ms,
    sse_data,
    summarise,
)
from tests.helpers.tiny_http import TinyServer, response, stream

SMALL = Workload(clients=3, requests=7, input_tokens=10, output_tokens=4)
USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}},
}
DONE = "data: [DONE]\n\n"


def piece(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": None}]}


def good(path: str, body: dict[str, Any]) -> bytes:
    """Three tokens in two pieces, with a comment and an empty piece between."""
    return stream(": ping\n\n", piece("one"), piece(""), piece(" two three"), USAGE, DONE)


async def outcome_of(start: Any, answer: bytes) -> Outcome:
    tiny = await start(TinyServer(lambda path, body: answer))
    async with httpx.AsyncClient(base_url=tiny.url) as client:
        return await run_request(client, SMALL.path, SMALL.body(0, "m"), lambda: 0.0)


async def split(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_events_are_found_however_the_bytes_arrive(size: int, newline: str) -> None:
    """U+2028 counts as the end of a line for Python's splitlines, but not in server-sent events."""
    lines = [": ping", "", 'data: {"a": "x\u2028é"}', "", "event: x", "data:2", "", "data: [DONE]", "", ""]
    found = [data async for data in sse_data(split(newline.join(lines).encode(), size))]
    assert found == ['{"a": "x\u2028é"}', "2", "[DONE]"]


async def test_a_good_stream_is_timed_piece_by_piece(start: Any) -> None:
    tiny = await start(TinyServer(good))
    ticks = itertools.count(10.0)
    async with httpx.AsyncClient(base_url=tiny.url) as client:
        outcome = await run_request(client, SMALL.path, SMALL.body(0, "tiny"), lambda: next(ticks))
    assert outcome.error is None
    assert (outcome.started, outcome.pieces, outcome.ended) == (10.0, [11.0, 13.0], 15.0)
    assert (outcome.input_tokens, outcome.cached_tokens, outcome.output_tokens) == (11, 8, 3)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (response(b'{"error": {"message": "too busy"}}', status="503 Service Unavailable"), 'HTTP 503: {"error"'),
        (stream(piece("a")), "without [DONE]"),
        (stream(piece("a"), {"error": {"message": "the engine died"}}, DONE), "error event: the engine died"),
        (stream("data: {oops\n\n", DONE), "bad JSON"),
        (b"", "RemoteProtocolError"),
        (stream(piece("a"), DONE)[:-9], "RemoteProtocolError"),
    ],
    ids=["status", "no end", "error event", "bad json", "nothing", "cut"],
)
async def test_every_kind_of_failure_is_an_error_and_not_a_crash(start: Any, answer: bytes, error: str) -> None:
    outcome = await outcome_of(start, answer)
    assert outcome.error is not None
    assert error in outcome.error


async def test_a_server_that_is_not_there_is_an_error() -> None:
    async with httpx.AsyncClient(base_url="http://127.0.0.1:1") as client:
        outcome = await run_request(client, SMALL.path, SMALL.body(0, "m"), lambda: 0.0)
    assert outcome.error is not None
    assert "ConnectError" in outcome.error


async def test_without_usage_pieces_are_counted(start: Any) -> None:
    assert (await outcome_of(start, stream(piece("a"), piece("b"), DONE))).output_tokens == 2


async def test_chat_deltas_count_and_the_role_does_not(start: Any) -> None:
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
    text = {"choices": [{"delta": {"content": "hi"}}]}
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    assert len((await outcome_of(start, stream(role, text, text, last, DONE))).pieces) == 2


async def test_all_requests_are_sent_with_so_many_at_a_time(start: Any) -> None:
    tiny = await start(TinyServer(good, together=SMALL.clients))
    async with httpx.AsyncClient(base_url=tiny.url) as client:
        outcomes = await run_load(client, SMALL, "tiny")
    assert len(outcomes) == len(tiny.seen) == SMALL.requests
    assert tiny.most == SMALL.clients
    assert len({each["prompt"] for each in tiny.seen}) == SMALL.requests
    assert all(each.error is None for each in outcomes)


async def test_measure_warms_up_outside_the_figures_and_asks_for_the_model(start: Any) -> None:
    tiny = await start(TinyServer(good))
    figures = await measure(tiny.url, SMALL, warmup=2, model="", api_key="k", timeout_s=5)
    assert len(tiny.seen) == SMALL.requests + 2
    assert figures["model"] == "tiny"
    assert (figures["requests"], figures["errors"]) == (SMALL.requests, 0)
    assert (figures["input_tokens"], figures["output_tokens"]) == (77, 21)
    assert json.loads(json.dumps(figures)) == figures


def test_a_prompt_has_so_many_words_and_the_same_in_every_run() -> None:
    workload = Workload(clients=1, requests=1, input_tokens=50, output_tokens=1, shared_prefix_tokens=30)
    one, two = (workload.prompt(number).split() for number in (0, 1))
    assert len(one) == len(two) == 50
    assert one[:30] == two[:30]
    assert one[30:] != two[30:]
    assert workload.prompt(0).split() == one
    other = Workload(clients=1, requests=1, input_tokens=50, output_tokens=1, shared_prefix_tokens=30, seed=1)
    assert other.prompt(0).split()[:30] != one[:30]


def test_a_prefix_longer_than_the_prompt_is_all_of_it() -> None:
    workload = Workload(clients=1, requests=1, input_tokens=5, output_tokens=1, shared_prefix_tokens=30)
    assert workload.prompt(0) == workload.prompt(1)
    assert len(workload.prompt(0).split()) == 5


def test_the_body_asks_for_what_was_set() -> None:
    body = SMALL.body(0, "m")
    assert (body["max_tokens"], body["stream"], body["ignore_eos"], body["model"]) == (4, True, True, "m")
    chat = Workload(clients=1, requests=1, input_tokens=2, output_tokens=3, endpoint="chat", ignore_eos=False)
    assert chat.path == "/v1/chat/completions"
    assert chat.body(0, "m")["messages"][0]["content"] == chat.prompt(0)
    assert not {"ignore_eos", "prompt"} & set(chat.body(0, "m"))


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (1, 1), (50, 5), (51, 6), (90, 9), (99, 10), (100, 10)])
def test_percentiles_are_nearest_rank(percent: float, expected: int) -> None:
    assert percentile([3, 1, 2, 5, 4, 10, 9, 8, 7, 6], percent) == expected


def test_percentiles_of_nothing_are_nothing() -> None:
    assert percentile([], 50) is None
    assert spread_ms([]) == {"p50": None, "p99": None, "max": None}
    assert spread_ms([0.0012345]) == {"p50": 1.23, "p99": 1.23, "max": 1.23}


def test_the_summary_adds_up() -> None:
    outcomes = [
        Outcome(started=10, pieces=[10.5, 10.6, 10.9], ended=11, input_tokens=7, cached_tokens=4, output_tokens=3),
        Outcome(started=10, pieces=[10.7], ended=12, input_tokens=5, output_tokens=1),
        Outcome(started=11, pieces=[11.1, 13.9], ended=14, output_tokens=2, error="cut"),
    ]
    figures = summarise(outcomes, SMALL)
    assert (figures["requests"], figures["errors"], figures["error_kinds"]) == (3, 1, {"cut": 1})
    assert figures["seconds"] == 4.0
    assert (figures["input_tokens"], figures["cached_tokens"], figures["output_tokens"]) == (12, 4, 4)
    assert figures["output_tokens_per_second"] == 1.0
    assert figures["input_tokens_per_second"] == 3.0
    assert figures["requests_per_second"] == 0.5
    assert figures["time_to_first_token_ms"] == {"p50": 500.0, "p99": 700.0, "max": 700.0}
    assert figures["inter_token_ms"] == {"p50": 100.0, "p99": 300.0, "max": 300.0}
    assert figures["request_ms"]["max"] == 2000.0


def test_the_table_shows_figures_errors_and_gaps_in_knowledge() -> None:
    out = io.StringIO()
    failed = [Outcome(started=0, ended=1, error="HTTP 503: [busy]")]
    show(summarise(failed, SMALL), Console(file=out, width=120))
    assert "1 errors" in out.getvalue()
    assert "1 x HTTP 503: [busy]" in out.getvalue()
    assert "time to first token" in out.getvalue()
