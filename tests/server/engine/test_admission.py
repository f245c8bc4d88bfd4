"""The door: how much may wait, in all and of each owner, and when the refused are to come back."""

import re
from random import Random

import pytest

from model.sampling_params import SamplingParams
from server.engine.admission import ANYBODY, Admission, Visitor, cost_of
from server.engine.errors import InvalidValue, TooBusy
from server.engine.request import Request


class World:
    """A door with a clock to turn."""

    def __init__(self, *, running: int = 2, waiting: int = 8, tokens: int | None = None) -> None:
        self.now = 1000.0
        self.door = Admission(
            running_limit=running, waiting_requests=waiting, waiting_tokens=tokens, clock=lambda: self.now
        )
        self.names = iter(range(10_000))

    def requests(self, count: int, *, prompt: int = 3, output: int = 7) -> list[Request]:
        return [Request(str(next(self.names)), (1,) * prompt, output, SamplingParams()) for _ in range(count)]

    def enter(self, count: int, visitor: Visitor = ANYBODY, *, prompt: int = 3) -> list[str]:
        requests = self.requests(count, prompt=prompt)
        self.door.check(visitor, requests)
        self.door.enter(visitor, requests)
        return [request.id for request in requests]

    def refused(self, count: int = 1, visitor: Visitor = ANYBODY) -> TooBusy:
        with pytest.raises(TooBusy) as error:
            self.door.check(visitor, self.requests(count))
        return error.value


def test_the_limit_is_running_plus_waiting() -> None:
    world = World(running=2, waiting=3)
    world.door.check(ANYBODY, world.requests(5))
    world.enter(4)
    world.door.check(ANYBODY, world.requests(1))
    error = world.refused(2)
    assert (error.status, error.code) == (503, "overloaded")
    assert error.message == "4 sequences run or wait; 2 more would pass the limit of 5"
    with pytest.raises(InvalidValue, match="6 answers asked for at once; this server holds at most 5"):
        world.door.check(ANYBODY, world.requests(6))


def test_who_would_be_refused_anyway_is_refused_at_the_knock() -> None:
    world = World(running=1, waiting=1)
    world.door.knock(ANYBODY)
    names = world.enter(2)
    with pytest.raises(TooBusy):
        world.door.knock(ANYBODY)
    world.door.end(names[0])
    world.door.knock(ANYBODY)


def test_tokens_of_prompts_and_outputs_may_be_limited_but_one_may_always_wait() -> None:
    world = World(tokens=25)
    assert [cost_of(request) for request in world.requests(1)] == [10]
    first = world.enter(1, prompt=100)
    assert world.door.waiting_tokens == 107
    assert "may take 107 tokens; 10 more would pass the limit of 25" in world.refused().message
    world.door.let_in(first[0])
    world.door.let_in(first[0])
    assert world.door.waiting_tokens == 0
    world.enter(2)
    assert world.door.waiting_tokens == 20
    world.refused()


def test_an_owner_has_limits_of_their_own_and_hurts_nobody_else() -> None:
    world = World()
    few, many = Visitor("few", max_waiting_requests=2), Visitor("many")
    names = world.enter(2, few)
    error = world.refused(1, few)
    assert (error.status, error.type, error.code) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert error.message == "2 requests of this key wait; its limit is 2"
    world.enter(1, many)
    world.door.let_in(names[0])
    world.enter(1, few)
    small = Visitor("small", max_waiting_tokens=15)
    world.enter(1, small)
    assert world.refused(1, small).message == "requests of this key that wait may take 10 tokens; its limit is 15"


def test_what_ended_leaves_nothing_behind() -> None:
    world = World(running=10)
    names = world.enter(3, Visitor("a")) + world.enter(3, Visitor("b"))
    for name in names[::2]:
        world.door.let_in(name)
    for name in names:
        world.door.end(name)
    assert world.door.waiting_tokens == 0
    world.door.check(ANYBODY, world.requests(18))


def test_the_refused_get_places_one_after_another_at_the_rate_of_late() -> None:
    world = World(running=2, waiting=8)
    names = world.enter(10)
    for name in names[:4]:  # one every 2 s
        world.now += 2.0
        world.door.end(name)
    world.enter(4)
    assert [world.refused().retry_after for _ in range(4)] == [2, 4, 6, 8]
    world.now += 7.0
    assert world.refused().retry_after == 5  # the place after the last one, and by now one ends every 3.75 s


def test_only_the_last_half_minute_counts() -> None:
    world = World(running=2, waiting=8)
    names = world.enter(10)
    for name in names[:5]:  # quick at first
        world.now += 0.01
        world.door.end(name)
    world.now += 60.0
    for name in names[5:8]:
        world.now += 10.0
        world.door.end(name)
    assert world.door.ends_per_second() == pytest.approx(0.1)


def test_idle_time_is_no_evidence_of_slowness() -> None:
    world = World()
    world.now += 20.0
    names = world.enter(2)
    world.now += 1.0
    world.door.end(names[0])
    assert world.door.ends_per_second() == 1.0


@pytest.mark.parametrize(("seconds", "rate"), [(0.0, 1.0), (5.0, 0.2), (10_000.0, 1 / 30)])
def test_where_nothing_ended_yet_one_is_assumed_to_soon(seconds: float, rate: float) -> None:
    world = World()
    world.enter(2)
    world.now += seconds
    assert world.door.ends_per_second() == pytest.approx(rate)


def test_who_comes_back_when_told_finds_room_though_others_keep_coming() -> None:
    """Strangers arrive all the time and take every place; one sequence ends per second."""
    world = World(running=1, waiting=9)
    names = world.enter(10)
    for name in names[:5]:
        world.now += 1.0
        world.door.end(name)
    running = names[5:] + world.enter(5)
    told = {f"client {i}": world.refused(1, Visitor(mark=f"client {i}")).retry_after for i in range(10)}
    assert sorted(told.values()) == list(range(1, 11))  # type: ignore[type-var]
    admitted = 0
    for second in range(1, 11):
        world.now += 1.0
        world.door.end(running.pop(0))
        for stranger in range(3):
            with pytest.raises(TooBusy):
                world.door.check(Visitor(mark=f"stranger {second} {stranger}"), world.requests(1))
        for mark in [mark for mark, due in told.items() if due == second]:
            running += world.enter(1, Visitor(mark=mark))
            admitted += 1
    assert admitted == 10


def test_a_place_that_nobody_comes_for_is_given_up() -> None:
    world = World(running=1, waiting=1)
    names = world.enter(2)
    wait = world.refused(1, Visitor(mark="gone")).retry_after
    assert wait is not None
    world.door.end(names[0])
    world.now += wait
    world.refused(1, Visitor(mark="stranger"))
    world.now += 2.1
    world.enter(1, Visitor(mark="stranger"))


def test_a_place_that_was_taken_is_kept_no_more() -> None:
    world = World(running=1, waiting=2)
    names = world.enter(3)
    wait = world.refused(1, Visitor(mark="back")).retry_after
    assert wait is not None
    world.door.end(names[0])
    world.now += wait
    world.enter(1, Visitor(mark="back"))
    world.door.end(names[1])
    world.enter(1, Visitor(mark="stranger"))


class Overload(World):
    """One that may run, others that wait at most a second; the line moves by two places a second."""

    def __init__(self, *, queue_s: float | None = 1.0) -> None:
        super().__init__(running=1, waiting=100)
        self.door = Admission(
            running_limit=1, waiting_requests=100, waiting_tokens=None, clock=lambda: self.now, queue_s=queue_s
        )
        self.line: list[str] = []

    def arrive(self, mark: str = "", owner: str = "") -> int | None:
        """None if it was let through the door, else when to come back."""
        try:
            self.line += self.enter(1, Visitor(owner, mark=mark))
        except TooBusy as error:
            return error.retry_after
        return None

    def serve(self, seconds: float, *, arrivals: int = 0) -> int:
        """So long: each half second one is let in and ends, then so many arrive. How many of those came through."""
        through = 0
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            if self.line:
                self.door.let_in(self.line[0])
                self.door.end(self.line.pop(0))
            through += sum(self.arrive(f"stranger {self.now} {number}") is None for number in range(arrivals))
        return through


def test_a_burst_is_no_overload_however_large() -> None:
    """All come at once, and there was no line before. The limit on requests is the only one."""
    world = Overload()
    world.serve(10, arrivals=2)
    world.serve(10)
    assert [world.arrive() for _ in range(101)] == [None] * 101
    assert world.arrive() is not None


def test_a_line_that_stands_is_kept_as_short_as_the_limit_says() -> None:
    """At twice the capacity all are let in for a second; then as many as are served, and they wait a second or so."""
    world = Overload()
    world.serve(5, arrivals=2)
    for _ in range(20):
        assert 1 <= world.serve(1, arrivals=2) <= 3
        assert len(world.line) <= 3


def test_without_the_limit_the_line_grows() -> None:
    world = Overload(queue_s=None)
    assert world.serve(20, arrivals=2) == 80
    assert len(world.line) == 41


def test_the_refusal_says_how_long_it_would_be_and_what_sets_the_limit() -> None:
    world = Overload()
    world.serve(10, arrivals=2)
    while world.arrive() is None:
        pass
    error = world.refused()
    assert (error.status, error.code) == (503, "overloaded")
    expected = r"a request would wait 1\.\d s for its turn; --max-queue-seconds is 1; try again later"
    assert re.fullmatch(expected, error.message)
    with pytest.raises(TooBusy):
        world.door.knock(ANYBODY)


def test_when_the_line_is_gone_nobody_is_refused() -> None:
    world = Overload()
    world.serve(10, arrivals=2)
    world.serve(5)
    assert [world.arrive() for _ in range(30)] == [None] * 30


def test_who_asks_for_little_is_let_in_beside_the_many_of_another() -> None:
    world = Overload(queue_s=4.0)
    world.serve(20, arrivals=2)
    while world.arrive() is None:
        pass
    taken = [world.arrive(owner="other") is None for _ in range(4)]
    assert taken == [True, True, True, False], "their fourth would be the eighth in line, and some are kept for others"


def test_a_request_for_many_answers_needs_room_for_the_first() -> None:
    world = Overload()
    world.serve(10, arrivals=2)
    world.serve(1)
    assert len(world.line) <= 1
    world.enter(20)
    assert world.arrive() is not None, "they make a line"


def test_a_short_line_is_never_too_long() -> None:
    """One is served in ten seconds; still two may wait."""
    world = Overload()
    for _ in range(3):
        world.arrive()
        world.now += 10.0
        world.door.let_in(world.line[0])
        world.door.end(world.line.pop(0))
    assert [world.arrive() for _ in range(2)] == [None] * 2
    world.now += 5.0
    assert world.arrive() is not None


def test_few_are_no_overload_however_slow_the_machine() -> None:
    """Sixteen clients of one small machine were refused while another program kept it busy."""
    world = Overload()
    world.door = Admission(
        running_limit=64, waiting_requests=100, waiting_tokens=None, clock=lambda: world.now, queue_s=1.0
    )
    for _ in range(32):
        assert world.arrive() is None
        world.now += 10.0
        world.door.let_in(world.line[-1])
    assert world.arrive() is None, "the line was empty"
    world.now += 2.0
    assert [world.arrive() is None for _ in range(2)] == [True, False]
    for name in world.line[:3]:
        world.door.end(name)
    assert world.arrive() is None


def test_those_who_gave_up_say_nothing_of_the_line_s_speed() -> None:
    world = Overload()
    for _ in range(5):
        world.arrive()
        world.now += 10.0
        world.door.end(world.line.pop(0))
    assert [world.arrive() for _ in range(5)] == [None] * 5
    world.now += 5.0
    assert world.arrive() is None


def test_most_who_come_back_when_told_are_let_in_though_twice_as_many_strangers_keep_coming() -> None:
    """Clients come on whole seconds after their refusal, and strangers take whatever they can get."""
    world, chance = Overload(), Random(7)
    world.serve(10, arrivals=2)
    told: list[tuple[float, str]] = []
    returned = admitted = 0
    for number in range(2000):
        world.now += chance.expovariate(4.0)
        for due, mark in sorted(each for each in told if each[0] <= world.now):
            told.remove((due, mark))
            returned, admitted = returned + 1, admitted + (world.arrive(mark) is None)
        if (wait := world.arrive(f"client {number}")) is not None:
            told.append((world.now + wait, f"client {number}"))
        if number % 2 and world.line:
            world.door.let_in(world.line[0])
            world.door.end(world.line.pop(0))
    assert returned > 300
    assert admitted >= 0.8 * returned
