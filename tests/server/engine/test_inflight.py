"""Which sequences are in flight, and how long a refused client is told to wait."""

from collections.abc import Sequence

import pytest

from model.sampling_params import SamplingParams
from server.engine.errors import Draining, InvalidValue, TooBusy
from server.engine.inflight import InFlight
from server.engine.request import Request, TokenEvent
from server.engine.submission import Submission


class World:
    """An InFlight with a clock to turn, and a record of what it said."""

    def __init__(self, *, running: int = 2, waiting: int = 8) -> None:
        self.now = 1000.0
        self.cancelled: list[str] = []
        self.discarded = 0
        self.names = iter(range(10_000))
        self.in_flight = InFlight(
            running_limit=running,
            waiting_limit=waiting,
            on_cancel=self._cancel,
            on_discard=self._discard,
            clock=lambda: self.now,
        )

    def _cancel(self, request_ids: Sequence[str]) -> None:
        self.cancelled += request_ids

    def _discard(self, tokens: int) -> None:
        self.discarded += tokens

    def add(self, count: int) -> tuple[Submission, list[str]]:
        names = [str(next(self.names)) for _ in range(count)]
        return self.in_flight.add([Request(name, (1,), 1, SamplingParams()) for name in names]), names

    def finish(self, name: str) -> None:
        self.in_flight.take(TokenEvent(name, (1,), finish="stop"))

    def retry_after(self) -> int | None:
        with pytest.raises(TooBusy) as error:
            self.in_flight.check_room(10)
        return error.value.retry_after


def test_a_sequence_is_in_flight_until_it_finishes() -> None:
    world = World()
    _, (first, second) = world.add(2)
    assert (len(world.in_flight), world.in_flight.idle.is_set()) == (2, False)
    world.in_flight.take(TokenEvent(first, (1,)))
    world.finish(first)
    assert (len(world.in_flight), world.in_flight.idle.is_set()) == (1, False)
    world.finish(second)
    assert (len(world.in_flight), world.in_flight.idle.is_set()) == (0, True)


def test_tokens_of_the_cancelled_are_discarded() -> None:
    world = World()
    submission, (name,) = world.add(1)
    submission.cancel()
    assert (world.cancelled, len(world.in_flight)) == ([name], 0)
    world.in_flight.take(TokenEvent(name, (1, 2, 3)))
    world.in_flight.take(TokenEvent(name, finish="cancelled"))
    assert world.discarded == 3


def test_closing_what_the_engine_has_finished_cancels_nothing_but_discards_what_was_not_read() -> None:
    world = World()
    submission, (name,) = world.add(1)
    world.finish(name)
    submission.close()
    assert (world.cancelled, world.discarded) == ([], 1)


def test_failing_names_what_was_going_on() -> None:
    world = World()
    _, names = world.add(3)
    world.finish(names[1])
    assert world.in_flight.fail_all(Draining("over")) == [names[0], names[2]]
    assert world.in_flight.fail_all(Draining("over")) == []
    assert world.in_flight.idle.is_set()


def test_the_limit_is_running_plus_waiting() -> None:
    world = World(running=2, waiting=3)
    world.in_flight.check_room(5)
    world.add(4)
    world.in_flight.check_room(1)
    with pytest.raises(TooBusy, match="4 sequences run or wait; 2 more would pass the limit of 5"):
        world.in_flight.check_room(2)
    with pytest.raises(InvalidValue, match="6 answers asked for at once; this server holds at most 5"):
        world.in_flight.check_room(6)


def test_ids_are_unique() -> None:
    world = World()
    world.add(1)
    world.names = iter([0])
    with pytest.raises(AssertionError, match="unique"):
        world.add(1)


# Retry-After


def test_the_wait_is_the_line_divided_by_the_rate() -> None:
    world = World(running=2, waiting=8)
    _, names = world.add(10)
    for name in names[:4]:  # one every 2 s
        world.now += 2.0
        world.finish(name)
    world.add(4)
    assert world.retry_after() == 16  # 8 wait, one ends every 2 s


def test_only_the_last_half_minute_counts() -> None:
    world = World(running=2, waiting=8)
    _, names = world.add(10)
    for name in names[:5]:  # quick at first
        world.now += 0.01
        world.finish(name)
    world.now += 60.0
    for name in names[5:8]:
        world.now += 10.0
        world.finish(name)
    world.add(8)
    assert world.retry_after() == 80  # 8 wait, 3 ended in 30 s


def test_idle_time_is_no_evidence_of_slowness() -> None:
    world = World(running=2, waiting=8)
    world.now += 20.0
    _, names = world.add(10)
    world.now += 1.0
    world.finish(names[0])
    world.finish(names[1])
    world.add(2)
    assert world.retry_after() == 4  # 8 wait, 2 ended within the busy second


@pytest.mark.parametrize(("seconds", "wait"), [(0.0, 1), (5.0, 40), (10_000.0, 240)])
def test_where_nothing_ended_yet_it_is_assumed_to_soon(seconds: float, wait: int) -> None:
    world = World(running=2, waiting=8)
    world.add(10)
    world.now += seconds
    assert world.retry_after() == wait


def test_the_wait_has_a_limit() -> None:
    world = World(running=1, waiting=1000)
    world.add(1001)
    world.now += 30.0
    assert world.retry_after() == 600
