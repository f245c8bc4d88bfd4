"""Gaps count while the long prompt is read, and both promises are judged."""

import asyncio
import json
from typing import Any

import pytest

from benchmarks.pacing import Load, gaps_between, judge, read_among_streams
from server.bench.outcome import Outcome
from tests.helpers.tiny_http import response


def test_only_gaps_that_end_within_the_span_count() -> None:
    streams = [Outcome(0, due=0.0, pieces=[0.5, 1.0, 1.75, 3.0]), Outcome(1, due=0.0, pieces=[1.25, 2.0])]
    assert gaps_between(streams, 1.0, 2.0) == [0.5, 0.75, 0.75]
    assert gaps_between(streams, 5.0, 6.0) == []


def run(p99: float, speed: float) -> dict[str, Any]:
    return {"inter_token_ms": {"p99": p99}, "prompt_tokens_per_second": speed}


@pytest.mark.parametrize(
    ("paced", "even", "fast"),
    [
        (run(149.0, 76.0), True, True),
        (run(151.0, 76.0), False, True),
        (run(149.0, 74.0), True, False),
    ],
)
def test_both_promises_are_judged(paced: dict[str, Any], even: bool, fast: bool) -> None:
    judged = judge(paced, run(900.0, 100.0), 100)
    assert (judged["even_enough"], judged["fast_enough"]) == (even, fast)


async def test_the_long_prompt_comes_while_the_streams_run() -> None:
    """A server that streams a token every few milliseconds, and reads the long prompt slowly."""
    order: list[int] = []
    handlers: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/v1/models" in head:
            return writer.write(response(b'{"data": [{"id": "m", "owned_by": "kvell"}]}'))
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        asked = json.loads(await reader.readexactly(length))
        words = len(asked["prompt"].split())
        order.append(words)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        await asyncio.sleep(0.05 if words > 100 else 0)
        for _ in range(asked["max_tokens"]):
            writer.write(b'data: {"choices": [{"text": "x"}]}\n\n')
            await asyncio.sleep(0.002)
            if writer.is_closing():
                return None
        usage = json.dumps({"choices": [], "usage": {"prompt_tokens": words, "completion_tokens": 2}})
        return writer.write(f"data: {usage}\n\ndata: [DONE]\n\n".encode())

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    found = await read_among_streams(url, Load(streams=3, prompt_tokens=200, stream_tokens=3000))
    assert order == [16, 16, 16, 200]
    assert found["prompt_tokens"] == 200
    assert found["prompt_tokens_per_second"] < 200 / 0.05
    assert found["inter_token_ms"]["p50"] < 50
    server.close()
    await asyncio.gather(*filter(None, handlers))
