"""One HTTP request for text until its end: choices, stops, figures, and what happens when somebody dies or leaves."""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from server.engine.errors import Draining, EngineUnavailable, TooBusy
from server.engine.request import Request, TokenEvent
from tests.helpers.api_world import Play, Step, World, events_of, make_world, says
from tests.helpers.asgi import Answered, Call, call
from tests.helpers.tiny_text import TinyTokenizer, ids_of, piece_id

PATH = "/v1/completions"


async def complete(world: World, **fields: Any) -> Answered:
    return await call(world.app, "POST", PATH, {"prompt": "hi", "max_tokens": 20} | fields)


def generated(world: World) -> float:
    return world.figure("kvell_generation_tokens_total")


def discarded(world: World) -> float:
    return world.figure("kvell_discarded_tokens_total")


def each_its_own(requests: Sequence[Request]) -> Iterable[Step]:
    """Choice c of prompt p says p and c, in interleaved steps; later choices take longer."""
    lines = [
        events_of(request, ids_of(f"{chr(request.prompt[-1])}{request.params.choice}" * (1 + index)))
        for index, request in enumerate(requests)
    ]
    for step in itertools.zip_longest(*lines, fillvalue=[]):
        yield [event for events in step for event in events]


@pytest.mark.parametrize("stream", [False, True])
async def test_choices_are_numbered_by_prompt_and_then_by_n(stream: bool) -> None:
    answered = await complete(make_world(each_its_own), prompt=["A", "B"], n=2, stream=stream)
    texts = dict.fromkeys(range(4), "")
    for body in answered.chunks() if stream else [answered.json()]:
        for choice in body["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == {0: "A0", 1: "A1" * 2, 2: "B0" * 3, 3: "B1" * 4}


async def test_a_prompt_counts_once_however_many_choices_it_has() -> None:
    world = make_world(says("ab", cached=1))
    usage = (await complete(world, prompt=["hi", "you"], n=3)).json()["usage"]
    assert usage["prompt_tokens"] == 3 + 4
    assert usage["completion_tokens"] == 6 * 3
    assert usage["prompt_tokens_details"]["cached_tokens"] == 2
    assert world.figure("kvell_prompt_tokens_total") == 7
    assert world.figure("kvell_cached_prompt_tokens_total") == 2
    assert generated(world) == 18


async def test_a_stop_string_cancels_the_sequence_in_the_engine() -> None:
    world = make_world(says("abcdefgh"))
    body = (await complete(world, stop=["cd"])).json()
    assert body["choices"][0] == {"index": 0, "text": "ab", "logprobs": None, "finish_reason": "stop"}
    assert body["usage"]["completion_tokens"] == 4
    assert world.service.cancelled == [world.service.submitted[0].id]
    assert len(world.service.in_flight) == 0


async def test_a_stop_string_ends_one_choice_and_leaves_the_others_alone() -> None:
    world = make_world(each_its_own)
    body = (await complete(world, prompt=["A"], n=3, stop="A1A1")).json()
    assert [choice["text"] for choice in body["choices"]] == ["A0", "", "A2" * 3]
    assert [choice["finish_reason"] for choice in body["choices"]] == ["length", "stop", "length"]


async def test_a_choice_that_a_stop_string_ended_is_cancelled_while_its_siblings_go_on() -> None:
    gate = asyncio.Event()

    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(requests[0].id, ids_of("ab")), TokenEvent(requests[1].id, ids_of("xy"))]
        yield gate
        yield from events_of(requests[1], ids_of("z"))

    world = make_world(play)
    under_way = Call(world.app, "POST", PATH, [b'{"prompt": "hi", "n": 2, "stop": "b", "stream": true}'])
    await under_way.wrote()
    while not under_way.answered.blocks:
        await under_way.wrote()
    assert world.service.cancelled == [world.service.submitted[0].id]
    gate.set()
    assert (await under_way.done()).chunks()[-1]["choices"][0] == {
        "index": 1,
        "text": "",
        "logprobs": None,
        "finish_reason": "length",
    }


async def test_a_stop_in_the_engine_s_last_event_cancels_nothing() -> None:
    world = make_world(says("ab", finish="length"))
    assert (await complete(world, stop="b")).json()["choices"][0]["finish_reason"] == "stop"
    assert world.service.cancelled == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("per_step", [1, 3, 8])
async def test_the_figures_agree_with_usage_streamed_or_not(stream: bool, per_step: int) -> None:
    world = make_world(says("abcdefgh", per_step=per_step))
    fields = {"stream": stream, "stop": "de"} | ({"stream_options": {"include_usage": True}} if stream else {})
    answered = await complete(world, **fields)
    usage = (answered.chunks()[-1] if stream else answered.json())["usage"]
    assert usage["completion_tokens"] == 5
    assert generated(world) == 5
    await asyncio.sleep(0)
    assert world.figure("kvell_requests_total", endpoint="completions", outcome="ok") == 1
    assert world.figure("kvell_choices_total", finish_reason="stop") == 1
    assert world.figure("kvell_time_to_first_token_seconds_count") == 1
    assert world.figure("kvell_queue_seconds_sum") == 0.25
    assert world.figure("kvell_request_seconds_count") == 1
    assert world.figure("kvell_request_prompt_tokens_sum") == usage["prompt_tokens"]
    assert world.figure("kvell_request_generation_tokens_sum") == usage["completion_tokens"]


async def test_tokens_past_a_stop_count_as_discarded() -> None:
    world = make_world(says("abcdefgh", per_step=9))
    await complete(world, stop="b")
    assert (generated(world), discarded(world)) == (2, 7)


async def test_the_drawn_seed_is_reported_and_reproduces() -> None:
    world = make_world()
    answered = await complete(world)
    assert answered.headers["x-kvell-seed"] == str(world.service.submitted[0].params.seed)
    streamed = await complete(world, stream=True, seed=5)
    assert streamed.headers["x-kvell-seed"] == "5"


REFUSALS = [
    (EngineUnavailable("the engine is restarting", retry_after=7), 503, "engine_unavailable", "7"),
    (Draining("the server is shutting down"), 503, "shutting_down", None),
    (TooBusy("too much", retry_after=3), 503, "overloaded", "3"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "code", "retry_after"), REFUSALS)
async def test_a_refusal_is_a_status_before_any_header(
    stream: bool, error: Any, status: int, code: str, retry_after: str | None
) -> None:
    world = make_world()
    world.service.refuse = error
    answered = await complete(world, stream=stream)
    assert answered.status == status
    assert answered.error["code"] == code
    assert answered.error["type"] == "server_error"
    assert answered.headers.get("retry-after") == retry_after
    assert world.figure("kvell_rejections_total", reason=code) == 1
    assert world.figure("kvell_requests_total", endpoint="completions", outcome="unavailable") == 1


async def test_while_the_engine_loads_the_answer_is_503_with_the_reason() -> None:
    world = make_world()
    world.service.info, world.service.reason = None, "the engine is loading the model (40%)"
    answered = await complete(world)
    assert (answered.status, answered.headers["retry-after"]) == (503, "1")
    assert "(40%)" in answered.error["message"]


async def test_more_answers_than_the_server_can_ever_hold_are_the_user_s_fault() -> None:
    world = make_world(max_sequences=200)
    answered = await complete(world, n=109)
    assert answered.status == 400
    assert "109" in answered.error["message"]


def dies_after(*steps: Step) -> Play:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield from steps
        yield EngineUnavailable("the engine was killed", retry_after=2)

    return play


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_dies_before_the_first_token_is_a_real_503(stream: bool) -> None:
    world = make_world(dies_after())
    answered = await complete(world, stream=stream)
    assert (answered.status, answered.error["code"]) == (503, "engine_unavailable")
    assert answered.headers["retry-after"] == "2"
    assert world.figure("kvell_requests_total", endpoint="completions", outcome="error") == 1
    assert world.figure("kvell_choices_total", finish_reason="error") == 1


def begins_then(*steps: Step) -> Play:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(request.id, ids_of("ab")) for request in requests]
        yield from steps

    return play


async def test_an_engine_that_dies_in_the_middle_of_a_stream_ends_it_with_an_error_event_and_done() -> None:
    world = make_world(begins_then(EngineUnavailable("the engine was killed")))
    answered = await complete(world, stream=True)
    assert answered.status == 200
    *_, last, done = answered.events()
    assert done == "[DONE]"
    assert last["error"]["code"] == "engine_unavailable"
    assert answered.complete
    assert generated(world) == 2


async def test_an_engine_that_dies_in_the_middle_of_a_whole_answer_is_a_503() -> None:
    world = make_world(begins_then(EngineUnavailable("the engine was killed")))
    assert (await complete(world)).status == 503
    assert (generated(world), discarded(world)) == (0, 2)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_sequence_is_a_500_with_its_reason_and_stops_its_siblings(stream: bool) -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(requests[1].id, finish="error", error="the logits are not numbers")]

    world = make_world(play)
    answered = await complete(world, n=2, stream=stream)
    assert (answered.status, answered.error["code"]) == (500, "generation_failed")
    assert "not numbers" in answered.error["message"]
    assert world.service.cancelled == [world.service.submitted[0].id]
    assert len(world.service.in_flight) == 0


async def test_a_bug_in_the_middle_of_a_stream_is_an_error_event_without_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(says("az"))
    tokenizer = world.serving.model.tokenizer
    real = tokenizer.piece
    monkeypatch.setattr(tokenizer, "piece", lambda i: real(i) if i != ord("z") else 1 / 0)
    answered = await complete(world, stream=True)
    *_, last, done = answered.events()
    assert (last["error"]["code"], done) == ("internal_error", "[DONE]")
    assert "division" not in answered.body.decode()
    assert "ZeroDivisionError" in caplog.text
    assert world.figure("kvell_requests_total", endpoint="completions", outcome="error") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_everything_at_once(stream: bool) -> None:
    forever = asyncio.Event()
    world = make_world(begins_then(forever))
    body = b'{"prompt": "hi", "n": 2, "stream": %s}' % (b"true" if stream else b"false")
    under_way = Call(world.app, "POST", PATH, [body])
    while world.service.in_flight.idle.is_set() or world.figure("kvell_prompt_tokens_total") == 0:
        await asyncio.sleep(0)
    under_way.leave()
    await under_way.done()
    assert sorted(world.service.cancelled) == sorted(request.id for request in world.service.submitted)
    assert len(world.service.in_flight) == 0
    assert world.figure("kvell_requests_total", endpoint="completions", outcome="cancelled") == 1
    assert world.figure("kvell_choices_total", finish_reason="cancelled") == 2
    assert (generated(world), discarded(world)) == ((4, 0) if stream else (0, 4))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_the_queue_cancels_too(stream: bool) -> None:
    def waits(requests: Sequence[Request]) -> Iterable[Step]:
        yield asyncio.Event()

    world = make_world(waits)
    under_way = Call(world.app, "POST", PATH, [b'{"prompt": "hi", "stream": %s}' % (b"true" if stream else b"false")])
    while not world.service.submitted:
        await asyncio.sleep(0)
    under_way.leave()
    await under_way.done()
    assert world.service.cancelled == [world.service.submitted[0].id]


async def test_a_client_that_leaves_while_it_sends_its_body_is_nobody_s_error() -> None:
    world = make_world()
    under_way = Call(world.app, "POST", PATH, [b'{"prompt"', b""])
    under_way._body = None  # type: ignore[assignment]  # nothing comes any more
    under_way.leave()
    await under_way.done()
    assert not world.service.submitted
    assert world.figure("kvell_requests_total", endpoint="completions", outcome="cancelled") == 1


async def test_a_request_that_is_torn_down_cancels_its_sequences() -> None:
    world = make_world(begins_then(asyncio.Event()))
    under_way = Call(world.app, "POST", PATH, [b'{"prompt": "hi"}'])
    while not world.service.submitted:
        await asyncio.sleep(0)
    under_way.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way.task
    assert len(world.service.in_flight) == 0
    assert world.figure("kvell_requests_total", endpoint="completions", outcome="cancelled") == 1


async def test_a_client_may_use_a_request_id_twice() -> None:
    world = make_world(says("ab"))
    both = await asyncio.gather(
        *(call(world.app, "POST", PATH, {"prompt": "hi"}, x_request_id="mine") for _ in range(2))
    )
    assert [answered.status for answered in both] == [200, 200]
    assert both[0].json()["id"] != both[1].json()["id"]


async def test_big_prompts_are_prepared_one_at_a_time_on_a_worker_thread() -> None:
    """Six at once once took gigabytes: a tokeniser needs many bytes per token while it works."""
    threads, two_at_once = list[threading.Thread](), threading.Barrier(2)

    class Watched(TinyTokenizer):
        def encode(self, text: str, *, add_bos: bool) -> list[int]:
            threads.append(threading.current_thread())
            if len(text) > 10:
                with suppress(threading.BrokenBarrierError):
                    two_at_once.wait(0.2)
                    threads.append(threading.main_thread())
            return super().encode(text, add_bos=add_bos)

    world = make_world(tokenizer=Watched())
    assert (await complete(world, prompt="small")).status == 200
    assert threads == [threading.main_thread()]
    threads.clear()
    for answered in await asyncio.gather(*(complete(world, prompt="x" * 20_000) for _ in range(4))):
        assert (answered.status, answered.error["code"]) == (400, "context_length_exceeded")
    assert len(threads) == 4
    assert threading.main_thread() not in threads


async def test_a_step_that_brings_no_token_brings_no_chunk() -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(requests[0].id)]  # admitted
        yield from events_of(requests[0], [piece_id("lo")])

    answered = await complete(make_world(play), stream=True)
    assert [chunk["choices"][0]["text"] for chunk in answered.chunks()] == ["lo", ""]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_stop_string_can_be_part_of_the_text_and_ends_it_all_the_same(stream: bool) -> None:
    world = make_world(says("abcdefgh"))
    answered = await complete(world, stop=["cd"], include_stop_str_in_output=True, stream=stream)
    choices = [choice for body in (answered.chunks() if stream else [answered.json()]) for choice in body["choices"]]
    assert "".join(choice["text"] for choice in choices) == "abcd"
    assert choices[-1]["finish_reason"] == "stop"


async def test_a_deadline_counts_from_the_request_s_arrival() -> None:
    world = make_world(says("ab"))
    before = time.monotonic()
    await complete(world, timeout_ms=60_000, n=2)
    await complete(world)
    first, second, third = (request.deadline for request in world.service.submitted)
    assert first is not None
    assert first == second
    assert before + 60 <= first <= time.monotonic() + 60
    assert third is None


async def test_without_a_timeout_the_operator_s_counts() -> None:
    world = make_world(says("ab"), default_timeout_s=60)
    before = time.monotonic()
    await complete(world)
    await complete(world, timeout_ms=90_000)
    first, second = (request.deadline for request in world.service.submitted)
    assert first is not None
    assert second is not None
    assert before + 60 <= first <= time.monotonic() + 60 < before + 90 <= second


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_deadline_cuts_is_an_answer_that_ended_by_length(stream: bool) -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(requests[0].id, ids_of("ab"))]
        yield [TokenEvent(requests[0].id, finish="length", ended_by="deadline", queue_seconds=0.5)]
        yield [TokenEvent(requests[1].id, finish="length", ended_by="deadline", queue_seconds=0.5, cached_tokens=0)]

    world = make_world(play)
    answered = await complete(world, timeout_ms=10, n=2, stream=stream)
    assert answered.status == 200
    bodies = answered.chunks() if stream else [answered.json()]
    said = dict.fromkeys(range(2), "")
    for choice in (choice for body in bodies for choice in body["choices"]):
        said[choice["index"]] += choice["text"]
    assert said == {0: "ab", 1: ""}
    assert world.figure("kvell_prompt_tokens_total") == 3
    assert world.figure("kvell_queue_seconds_count") == 2


async def test_a_prompt_that_is_echoed_and_not_continued_is_the_whole_answer() -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(requests[0].id, finish="length")]

    world = make_world(play)
    body = (await complete(world, max_tokens=0, echo=True)).json()
    assert body["choices"] == [{"index": 0, "text": "hi", "logprobs": None, "finish_reason": "length"}]
    assert body["usage"]["completion_tokens"] == 0
    assert world.figure("kvell_prompt_tokens_total") == body["usage"]["prompt_tokens"] == 3
