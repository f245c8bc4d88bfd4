"""Streams on the wire: frames, order, headers and pings."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from server.api.sse import EventStream, event
from server.engine.errors import EngineUnavailable
from server.engine.request import Request, TokenEvent
from tests.helpers.api_world import Step, World, events_of, make_world, says
from tests.helpers.asgi import Answered, Call, call
from tests.helpers.tiny_text import ids_of, piece_id

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    COMPLETIONS: {"prompt": "hi"},
}


async def stream(world: World, path: str, **fields: Any) -> Answered:
    return await call(world.app, "POST", path, BODIES[path] | {"stream": True} | fields)


@pytest.mark.parametrize("path", BODIES)
async def test_the_headers_keep_proxies_and_caches_out_of_the_way(path: str) -> None:
    answered = await stream(make_world(), path)
    assert answered.status == 200
    assert answered.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answered.headers["cache-control"] == "no-store"
    assert answered.headers["x-accel-buffering"] == "no"
    assert "content-length" not in answered.headers
    assert "x-request-id" in answered.headers


async def test_a_chat_stream_is_one_role_then_text_then_one_reason() -> None:
    chunks = (await stream(make_world(says("aé")), CHAT)).chunks()
    assert [chunk["choices"] for chunk in chunks] == [
        [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": "", "refusal": None},
                "logprobs": None,
                "finish_reason": None,
            }
        ],
        [{"index": 0, "delta": {"content": "a"}, "logprobs": None, "finish_reason": None}],
        [{"index": 0, "delta": {"content": "é"}, "logprobs": None, "finish_reason": None}],
        [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}],
    ]


async def test_a_completions_stream_is_text_then_one_reason() -> None:
    chunks = (await stream(make_world(says("ab", finish="length")), COMPLETIONS)).chunks()
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "text": "a", "logprobs": None, "finish_reason": None}],
        [{"index": 0, "text": "b", "logprobs": None, "finish_reason": None}],
        [{"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}],
    ]


@pytest.mark.parametrize("path", BODIES)
async def test_id_time_model_and_object_stay_the_same_and_no_usage_is_sent_unasked(path: str) -> None:
    chunks = (await stream(make_world(says("Hello")), path)).chunks()
    kind = "chat.completion.chunk" if path == CHAT else "text_completion"
    assert {(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks} == {
        (chunks[0]["id"], chunks[0]["created"], "tiny", kind)
    }
    assert all("usage" not in chunk for chunk in chunks)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("options", [{}, {"include_usage": False}, {"include_usage": None}])
async def test_options_that_ask_for_no_usage_get_none(path: str, options: dict[str, Any]) -> None:
    chunks = (await stream(make_world(), path, stream_options=options)).chunks()
    assert all("usage" not in chunk for chunk in chunks)


@pytest.mark.parametrize("path", BODIES)
async def test_usage_comes_last_with_no_choices_and_is_null_before(path: str) -> None:
    play = says("Hello", cached=1)
    whole = (await call(make_world(play).app, "POST", path, BODIES[path])).json()
    *before, last = (await stream(make_world(play), path, stream_options={"include_usage": True})).chunks()
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert [chunk["usage"] for chunk in before] == [None] * len(before)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("last", [False, True])
async def test_continuous_usage_is_what_has_come_so_far(path: str, last: bool) -> None:
    options = {"continuous_usage_stats": True, "include_usage": last}
    play = says("Hello", cached=1)
    chunks = (await stream(make_world(play), path, stream_options=options, n=2)).chunks()
    whole = (await call(make_world(play).app, "POST", path, BODIES[path] | {"n": 2})).json()["usage"]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[0] == 2  # one of each choice
    assert chunks[-1]["usage"] == whole
    assert (chunks[-1]["choices"] == []) == last
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {whole["prompt_tokens"]}


def progressing(requests: Sequence[Request]) -> Iterable[Step]:
    """Prompts that are done in three steps; the second one's choices share it."""
    total = len(requests[0].prompt)
    for done in (0, total - 2, total - 1):
        yield [TokenEvent(request.id, prompt_done=done, cached_tokens=1) for request in requests]
    lines = [events_of(request, ids_of("ab")) for request in requests]
    for number in range(2):
        yield [event for line in lines for event in line[number]]


@pytest.mark.parametrize("path", BODIES)
async def test_progress_of_each_prompt_comes_once_a_step_and_before_any_text(path: str) -> None:
    world = make_world(progressing)
    chunks = (await stream(world, path, stream_options={"include_progress": True}, n=2)).chunks()
    told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    total = len(world.service.submitted[0].prompt)
    assert all(request.wants_progress for request in world.service.submitted)
    assert told == [{"prompt": 0, "total": total, "processed": done, "cached": 1} for done in (total - 2, total - 1)]
    assert [chunk["choices"] for chunk in chunks[:2]] == [[], []]
    assert not any("prompt_progress" in chunk for chunk in chunks[2:])
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1


async def test_progress_is_told_only_where_it_was_asked_for() -> None:
    world = make_world(progressing)
    chunks = (await stream(world, COMPLETIONS)).chunks()
    assert not any("prompt_progress" in chunk for chunk in chunks)
    assert not world.service.submitted[0].wants_progress


@pytest.mark.parametrize("path", BODIES)
async def test_every_choice_has_one_reason_and_nothing_after_it(path: str) -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(request.id, ids_of("ab")) for request in requests]
        for request in reversed(requests):
            yield from events_of(request, ids_of("cd"))

    chunks = (await stream(make_world(play), path, n=3)).chunks()
    seen: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        assert "finish_reason" in choice
        assert seen[choice["index"]][-1:] != ["length"], "something after the end"
        seen[choice["index"]].append(choice["finish_reason"])
    assert all(reasons[-1] == "length" and reasons.count("length") == 1 for reasons in seen.values())


async def test_every_role_comes_before_any_text() -> None:
    chunks = (await stream(make_world(says("ab")), CHAT, n=3)).chunks()
    deltas = [(chunk["choices"][0]["index"], chunk["choices"][0]["delta"]) for chunk in chunks]
    assert [index for index, delta in deltas[:3] if "role" in delta] == [0, 1, 2]
    assert not any("role" in delta for _, delta in deltas[3:])


async def test_a_step_is_one_write_for_all_choices() -> None:
    answered = await stream(make_world(says("abc", finish="length")), COMPLETIONS, n=4)
    assert len(answered.blocks) == 3
    assert answered.blocks[0].count(b"data: ") == 4
    assert answered.blocks[-1].endswith(b"data: [DONE]\n\n")


async def test_text_that_is_held_back_makes_no_empty_chunks() -> None:
    chunks = (await stream(make_world(says("é🎉", piece_id("lo"))), COMPLETIONS, stop="lo w")).chunks()
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["é", "🎉", "lo", ""]


async def test_text_with_line_breaks_stays_one_data_line() -> None:
    text = "a\n\nb\r\nc\u2028d\u0085e"
    chunks = (await stream(make_world(says(text)), COMPLETIONS, max_tokens=50)).chunks()
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text


def test_an_event_is_one_line_of_json_in_utf_8() -> None:
    assert event({"text": "a\nb\r🎉"}) == 'data: {"text":"a\\nb\\r🎉"}\n\n'.encode()


class Gate:
    """A play whose steps the test lets through."""

    def __init__(self, *steps: Sequence[int] | EngineUnavailable) -> None:
        self.steps = steps
        self.gates = [asyncio.Event() for _ in steps]

    def __call__(self, requests: Sequence[Request]) -> Iterable[Step]:
        for number, (gate, step) in enumerate(zip(self.gates, self.steps, strict=True)):
            yield gate
            if isinstance(step, EngineUnavailable):
                yield step
            else:
                last = number == len(self.steps) - 1
                yield [TokenEvent(requests[0].id, tuple(step), finish="length" if last else None)]


def begin(world: World) -> Call:
    return Call(world.app, "POST", COMPLETIONS, [b'{"prompt": "hi", "stream": true}'])


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_headers_go_out_with_the_first_token() -> None:
    gate = Gate(ids_of("a"), ids_of("b"))
    under_way = begin(make_world(gate))
    await settle()
    assert under_way.answered.status == 0
    gate.gates[0].set()
    await under_way.wrote()
    assert under_way.answered.status == 200
    gate.gates[1].set()
    assert len((await under_way.done()).chunks()) == 3


async def test_while_it_waits_for_admission_no_header_is_sent_however_long_it_takes() -> None:
    gate = Gate(EngineUnavailable("killed"))
    world = make_world(gate, ping_s=0.001)
    under_way = begin(world)
    while not world.service.submitted:
        await asyncio.sleep(0)
    for _ in range(10):  # ten ping intervals and more
        await asyncio.sleep(0.001)
    assert under_way.answered.status == 0
    gate.gates[0].set()
    assert (await under_way.done()).status == 503


async def test_once_admitted_pings_keep_the_connection_alive_before_and_between_tokens() -> None:
    gate = Gate((), ids_of("a"), ids_of("b"))  # () is the admission
    under_way = begin(make_world(gate, ping_s=0.001))
    gate.gates[0].set()
    await under_way.wrote()
    assert under_way.answered.status == 200
    while under_way.answered.body.count(b": ping\n\n") < 3:
        await under_way.wrote()
    gate.gates[1].set()
    while b'"a"' not in under_way.answered.body:
        await under_way.wrote()
    seen = under_way.answered.body.count(b": ping\n\n")
    while under_way.answered.body.count(b": ping\n\n") == seen:
        await under_way.wrote()
    gate.gates[2].set()
    answered = await under_way.done()
    assert [chunk["choices"][0]["text"] for chunk in answered.chunks()] == ["a", "b", ""]


async def test_an_error_after_a_ping_is_an_event_since_the_status_is_gone() -> None:
    gate = Gate((), EngineUnavailable("killed"))
    under_way = begin(make_world(gate, ping_s=0.001))
    gate.gates[0].set()
    while b": ping" not in under_way.answered.body:
        await under_way.wrote()
    gate.gates[1].set()
    answered = await under_way.done()
    assert answered.status == 200
    (chunk,) = answered.chunks()
    assert chunk["error"]["message"] == "killed"


async def test_a_write_that_fails_closes_the_source_of_the_stream() -> None:
    closed = []

    async def frames() -> Any:
        try:
            yield b"one"
            yield b"two"
        finally:
            closed.append(True)

    async def send(message: Any) -> None:
        if message.get("body"):
            raise OSError("broken pipe")

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    with pytest.raises(OSError, match="broken pipe"):
        await EventStream(frames(), {})({"type": "http"}, receive, send)
    assert closed == [True]
