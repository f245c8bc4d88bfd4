"""Which sequences are in flight, and what becomes of their events."""

from collections.abc import Sequence

import pytest

from model.sampling_params import SamplingParams
from server.engine.admission import Admission
from server.engine.errors import Draining
from server.engine.inflight import InFlight
from server.engine.request import Request, TokenEvent
from server.engine.submission import Submission


class World:
    """An InFlight with a clock to turn, and a record of what it said."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.discarded = 0
        self.names = iter(range(10_000))
        admission = Admission(running_limit=2, waiting_requests=8, waiting_tokens=None, clock=lambda: 1000.0)
        self.in_flight = InFlight(admission, on_cancel=self._cancel, on_discard=self._discard)

    def _cancel(self, request_ids: Sequence[str], *, answered: bool) -> None:
        self.cancelled += request_ids

    def _discard(self, tokens: int) -> None:
        self.discarded += tokens

    def add(self, count: int) -> tuple[Submission, list[str]]:
        names = [str(next(self.names)) for _ in range(count)]
        return self.in_flight.add([Request(name, (1,), 1, SamplingParams()) for name in names]), names

    def finish(self, name: str) -> None:
        self.in_flight.take(TokenEvent(name, (1,), finish="stop"))


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
    assert world.in_flight.fail(Draining("over")) == [names[0], names[2]]
    assert world.in_flight.fail(Draining("over")) == []
    assert world.in_flight.idle.is_set()


def test_ids_are_unique() -> None:
    world = World()
    world.add(1)
    world.names = iter([0])
    with pytest.raises(AssertionError, match="unique"):
        world.add(1)
