"""Requests on their way: what is sent, what waits, and what those who wait are told."""

import asyncio
import time
from collections.abc import Callable

import pytest

from model.sampling_params import SamplingParams
from server.engine.admission import ANYBODY, Admission
from server.engine.dispatch import Dispatch
from server.engine.errors import CondemnedRequest, Draining, EngineUnavailable
from server.engine.request import Request, StepStats, TokenEvent
from server.engine.submission import Submission
from server.engine.wire import Begun, Cancel, Step, Submit
from tests.helpers.waiting import eventually

STATS = StepStats(0.0, 0, 0, 0, 0, 0, 0, ())
LOST = EngineUnavailable("lost", retry_after=1)


class World:
    """A dispatch whose engine is the test."""

    def __init__(self) -> None:
        self.sent: list[Submit | Cancel] = []
        self.clock: Callable[[], float] = time.monotonic
        admission = Admission(running_limit=8, waiting_requests=100, waiting_tokens=None, clock=time.monotonic)
        self.dispatch = Dispatch(
            admission, send=self.sent.append, on_discard=lambda tokens: None, clock=lambda: self.clock()
        )
        self.dispatch.resume()

    def ask(self, *names: str, timeout_s: float | None = None) -> Submission:
        """Names that begin alike ask the same."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        requests = [Request(name, (ord(name[0]),), 4, SamplingParams(), deadline=deadline) for name in names]
        return self.dispatch.submit(requests, ANYBODY)

    def begin(self, *names: str) -> None:
        self.dispatch.begun(Begun(names))

    def finish(self, name: str) -> None:
        self.dispatch.take(Step((TokenEvent(name, (1,), finish="stop"),), STATS))

    def suspect(self, *names: str) -> None:
        self.ask(*names)
        self.begin(*names)
        self.dispatch.lose(LOST)
        self.dispatch.resume()
        self.sent.clear()

    def news(self) -> list[tuple[str, ...]]:
        """Ids in the messages that were sent since the last call; those of a cancel after a minus."""
        told = [
            ("-", *message.request_ids) if isinstance(message, Cancel) else tuple(each.id for each in message.requests)
            for message in self.sent
        ]
        self.sent.clear()
        return told


@pytest.fixture
def world() -> World:
    return World()


async def test_what_is_submitted_together_is_sent_together(world: World) -> None:
    world.ask("a", "b")
    assert world.news() == [("a", "b")]
    assert (len(world.dispatch), world.dispatch.occupied, world.dispatch.num_outside) == (2, True, 0)


async def test_what_waits_is_sent_with_the_time_since_when(world: World) -> None:
    world.suspect("s")
    world.ask("a")
    world.clock = lambda: 1000.0
    world.ask("s2")
    world.clock = lambda: 2000.0
    world.finish("a")
    assert isinstance(world.sent[-1], Submit)
    assert [(each.id, each.waiting_since) for each in world.sent[-1].requests] == [("s2", 1000.0)]


async def test_the_begun_are_admitted(world: World) -> None:
    first, second = world.ask("a"), world.ask("b")
    world.begin("a", "who left meanwhile")
    assert (first.admitted, second.admitted) == (True, False)
    assert world.dispatch.admission.waiting_tokens == 5


async def test_suspects_go_one_by_one_with_nobody_beside_them(world: World) -> None:
    world.suspect("s", "t")
    both = world.ask("s2", "t2")
    world.ask("a")
    assert world.news() == [("s2",)]
    world.finish("s2")
    assert world.news() == [("t2",)]
    world.finish("t2")
    assert world.news() == [("a",)]
    assert [event.request_id for event in await both.batch()] == ["s2", "t2"]


async def test_a_lost_engine_ends_those_inside_and_nobody_who_waits(world: World) -> None:
    world.suspect("s")
    inside = world.ask("a")
    outside = world.ask("s2")
    world.begin("a")
    assert world.dispatch.lose(LOST) == 1
    with pytest.raises(EngineUnavailable):
        await inside.batch()
    waiting = asyncio.ensure_future(outside.batch())
    late = world.ask("b")
    world.dispatch.resume()
    assert world.news() == [("a",), ("b",)]
    world.finish("b")
    assert world.news() == [("s2",)]
    world.finish("s2")
    assert len(await waiting) == len(await late.batch()) == 1


async def test_what_was_submitted_with_somebody_inside_ends_with_it(world: World) -> None:
    world.suspect("s", "t")
    both = world.ask("s2", "t2")
    world.begin("s2")
    world.dispatch.lose(LOST)
    with pytest.raises(CondemnedRequest):
        await both.batch()
    world.dispatch.resume()
    assert (len(world.dispatch), world.dispatch.num_outside) == (0, 0)
    assert world.news() == [("s2",)]


async def test_the_condemned_is_refused_before_it_counts(world: World) -> None:
    world.suspect("s")
    guilty, twin = world.ask("s2"), world.ask("s3")
    world.begin("s2")
    world.dispatch.lose(LOST)
    for each in (guilty, twin):
        with pytest.raises(CondemnedRequest, match="twice"):
            await each.batch()
    with pytest.raises(CondemnedRequest, match="not tried again"):
        world.ask("a", "s4")
    assert len(world.dispatch) == 0
    world.dispatch.resume()
    world.ask("a")
    assert world.news() == [("s2",), ("a",)]


async def test_who_leaves_while_inside_is_cancelled_and_who_leaves_outside_is_not(world: World) -> None:
    world.suspect("s")
    inside, outside = world.ask("a"), world.ask("s2")
    outside.close()
    assert world.news() == [("a",)]
    inside.close()
    assert world.news() == [("-", "a")]
    world.ask("s3")
    assert world.news() == [], "a is not gone yet"
    world.dispatch.take(Step((TokenEvent("a", finish="cancelled"),), STATS))
    assert world.news() == [("s3",)]


async def test_who_leaves_while_there_is_no_engine_sends_nothing(world: World) -> None:
    world.suspect("s")
    world.ask("a")
    outside, other = world.ask("s2"), world.ask("b")
    world.dispatch.lose(LOST)
    world.sent.clear()
    outside.close()
    assert world.news() == []
    other.close()
    assert world.dispatch.idle.is_set()


async def test_when_the_suspect_that_all_wait_for_leaves_they_go_in(world: World) -> None:
    world.suspect("s")
    world.ask("a")
    outside = world.ask("s2")
    world.ask("b")
    world.news()
    outside.close()
    assert world.news() == [("b",)]


@pytest.mark.parametrize(("enough", "next_one"), [(True, ("s3", "a")), (False, ("s3",))])
async def test_a_stop_string_is_an_answer_and_leaving_is_none(
    world: World, enough: bool, next_one: tuple[str, ...]
) -> None:
    world.suspect("s")
    submission = world.ask("s2")
    submission.cancel("s2" if enough else None)
    world.dispatch.take(Step((TokenEvent("s2", finish="cancelled"),), STATS))
    world.news()
    world.ask("s3")
    world.ask("a")
    assert [name for message in world.news() for name in message] == list(next_one)


async def test_a_deadline_passes_while_it_waits_outside(world: World) -> None:
    world.suspect("s")
    world.ask("a")
    late = world.ask("s2", timeout_s=0.02)
    (event,) = await late.batch()
    assert (event.finish, event.ended_by, event.tokens) == ("length", "deadline", ())
    assert event.queue_seconds >= 0.02
    world.finish("a")
    assert world.news() == [("a",)]
    assert len(world.dispatch) == 0


async def test_a_deadline_of_who_was_let_in_meanwhile_is_the_engines(world: World) -> None:
    world.suspect("s")
    world.ask("a")
    late = world.ask("s2", timeout_s=0.02)
    world.finish("a")
    passed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, passed.set_result, None)
    await passed
    assert len(world.dispatch) == 1
    world.finish("s2")
    assert [event.finish for event in await late.batch()] == ["stop"]


async def test_at_the_end_all_hear_of_it(world: World) -> None:
    world.suspect("s")
    inside, outside = world.ask("a"), world.ask("s2")
    world.news()
    assert world.dispatch.fail_all(Draining("over")) == 2
    assert world.news() == [("-", "a")]
    for each in (inside, outside):
        with pytest.raises(Draining):
            await each.batch()
    await eventually(world.dispatch.idle.is_set)
