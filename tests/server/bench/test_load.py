"""Arrivals come when they were drawn, whatever the server does; clients of a closed loop wait for their answers."""

import asyncio
import math
import statistics
from collections.abc import Callable
from itertools import pairwise

import pytest

from server.bench.load import Shape, run_load
from server.bench.outcome import Outcome


class World:
    """A clock that only `sleep` moves, and a server that takes `takes` seconds for each request."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, takes: Callable[[Outcome], float], *, oversleeps_s: float = 0.0
    ) -> None:
        self.now = 0.0
        self.takes = takes
        self.oversleeps_s = oversleeps_s
        self.seen: list[tuple[int, float]] = []
        self.most = self.open = 0
        self._sleepers: list[tuple[float, asyncio.Event]] = []
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        """Until it is this one's turn: the earliest sleeper wakes when nobody else has anything to do."""
        mine = asyncio.Event()
        self._sleepers.append((self.now + seconds + self.oversleeps_s, mine))
        if len(self._sleepers) == 1:
            asyncio.get_running_loop().call_later(0.001, self._wake)
        await mine.wait()

    def _wake(self) -> None:
        """Those that it wakes have their turn before the next one is woken."""
        self._sleepers.sort(key=lambda each: each[0])
        self.now, event = self._sleepers.pop(0)
        event.set()
        if self._sleepers:
            asyncio.get_running_loop().call_later(0.001, self._wake)

    async def ask(self, outcome: Outcome) -> Outcome:
        outcome.sent = self.now
        self.seen.append((outcome.number, self.now))
        self.open += 1
        self.most = max(self.most, self.open)
        await self.sleep(self.takes(outcome))
        self.open -= 1
        outcome.ended = self.now
        return outcome

    def clock(self) -> float:
        return self.now


def test_arrivals_are_a_poisson_process_of_that_rate() -> None:
    """Of an exponential distribution mean and deviation are equal: 1 / rate."""
    offsets = list(Shape(rate=50.0, num_requests=4000).offsets())
    gaps = [later - earlier for earlier, later in pairwise(offsets)]
    assert offsets[0] == 0.0
    assert statistics.mean(gaps) == pytest.approx(0.02, rel=0.1)
    assert statistics.stdev(gaps) == pytest.approx(0.02, rel=0.1)
    assert list(Shape(rate=50.0, num_requests=4000, seed=1).offsets()) != offsets
    assert list(Shape(rate=50.0, num_requests=4000).offsets()) == offsets


def test_a_duration_ends_arrivals_and_a_burst_is_all_at_once() -> None:
    timed = list(Shape(rate=100.0, duration_s=2.0).offsets())
    assert 1.9 < timed[-1] <= 2.0
    assert 150 < len(timed) < 250
    assert list(Shape(rate=math.inf, num_requests=5).offsets()) == [0.0] * 5


async def test_a_slow_server_delays_no_arrival_of_an_open_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer takes a thousand seconds, and still all are sent within the two of the load."""
    world = World(monkeypatch, takes=lambda outcome: 1000.0)
    shape = Shape(rate=10.0, duration_s=2.0)
    run = await run_load(shape, world.ask, world.clock)
    expected = list(shape.offsets())
    assert [at for _, at in sorted(world.seen)] == pytest.approx(expected)
    assert [each.due for each in sorted(run.outcomes, key=lambda each: each.number)] == pytest.approx(expected)
    assert run.load_s == 2.0


async def test_a_client_that_is_late_changes_nothing_about_when_requests_were_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine sleeps half a second too long each time: requests are sent late, and latencies count from before."""
    world = World(monkeypatch, takes=lambda outcome: 1.0, oversleeps_s=0.5)
    shape = Shape(rate=10.0, duration_s=2.0)
    run = await run_load(shape, world.ask, world.clock)
    assert [each.due for each in sorted(run.outcomes, key=lambda each: each.number)] == pytest.approx(
        [*shape.offsets()]
    )
    assert max(each.sent - each.due for each in run.outcomes) > 0.2


async def test_a_closed_loop_has_so_many_at_a_time_and_all_numbers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, takes=lambda outcome: 1.0)
    run = await run_load(Shape(concurrency=3, num_requests=8), world.ask, world.clock)
    assert sorted(each.number for each in run.outcomes) == list(range(8))
    assert world.most == 3
    assert run.load_s == pytest.approx(3.0)


async def test_a_closed_loop_begins_nothing_after_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, takes=lambda outcome: 1.0)
    run = await run_load(Shape(concurrency=2, duration_s=2.5), world.ask, world.clock)
    assert len(run.outcomes) == 6
    assert max(each.sent for each in run.outcomes) == 2.0


def refuse_first(seconds: float) -> Callable[[Outcome], Outcome]:
    def decide(outcome: Outcome) -> Outcome:
        if not outcome.returned:
            outcome.fail("503", "busy")
            outcome.retry_after_s = seconds
        return outcome

    return decide


@pytest.mark.parametrize(
    ("told", "come_back", "attempts"),
    [(2.0, True, [(False, 0.0), (True, 3.0)]), (2.0, False, [(False, 0.0)]), (50.0, True, [(False, 0.0)])],
    ids=["in time", "not asked for", "after the load"],
)
async def test_refused_clients_come_back_when_told(
    monkeypatch: pytest.MonkeyPatch, told: float, come_back: bool, attempts: list[tuple[bool, float]]
) -> None:
    """Refused after one second, told two more: due again at three, and that is what its latency counts from."""
    world = World(monkeypatch, takes=lambda outcome: 1.0)
    decide = refuse_first(told)

    async def ask(outcome: Outcome) -> Outcome:
        return decide(await world.ask(outcome))

    shape = Shape(rate=0.01, duration_s=10.0, come_back=come_back)
    run = await run_load(shape, ask, world.clock)
    first = [each for each in run.outcomes if each.number == 0]
    assert [(each.returned, each.due) for each in first] == attempts


async def test_clients_of_a_closed_loop_always_come_back_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that asked again at once would measure how fast a server refuses."""
    world = World(monkeypatch, takes=lambda outcome: 1.0)
    decide = refuse_first(4.0)

    async def ask(outcome: Outcome) -> Outcome:
        return decide(await world.ask(outcome))

    run = await run_load(Shape(concurrency=1, duration_s=8.0), ask, world.clock)
    assert [(each.number, each.due) for each in run.outcomes] == [(0, 0.0), (0, 5.0), (1, 6.0)]


async def test_those_of_a_burst_come_back_until_they_are_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, takes=lambda outcome: 1.0)
    decide = refuse_first(30.0)

    async def ask(outcome: Outcome) -> Outcome:
        return decide(await world.ask(outcome))

    run = await run_load(Shape(rate=math.inf, num_requests=3, come_back=True), ask, world.clock)
    assert sorted(each.returned for each in run.outcomes) == [False] * 3 + [True] * 3
