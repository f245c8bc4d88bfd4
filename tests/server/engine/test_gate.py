"""Who goes in when: suspects alone, everybody in the end, and nobody condemned who was not alone."""

from random import Random

import pytest

from model.sampling_params import SamplingParams
from server.engine.gate import TURN_SECONDS, Gate, Loss
from server.engine.request import Constraint, Request
from tests.helpers.worlds import FakeClock


def asks(name: str, *, deadline: float | None = None, constraint: Constraint | None = None) -> Request:
    """Requests whose names begin with the same letter ask the same."""
    return Request(name, (ord(name[0]),), 4, SamplingParams(), deadline=deadline, constraint=constraint)


class Engine:
    """What is behind the gate, by hand."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.gate = Gate(self.clock)

    def ask(self, *names: str) -> list[str]:
        """They arrive; who goes in."""
        self.gate.add(map(asks, names))
        return self.release()

    def release(self) -> list[str]:
        return [request.id for request in self.gate.release()]

    def end(self, *names: str) -> list[str]:
        """They are answered; who goes in then."""
        for name in names:
            self.gate.end(name, answered=True)
        return self.release()

    def crash(self, *begun: str) -> Loss:
        self.gate.begin(begun)
        return self.gate.lose()

    def suspect(self, *names: str) -> None:
        """Let these be in it when it breaks down."""
        self.ask(*names)
        self.crash(*names)


def test_while_nobody_is_suspect_all_go_in_as_they_come() -> None:
    engine = Engine()
    assert engine.ask("a", "b") == ["a", "b"]
    assert engine.ask("a2") == ["a2"]
    assert engine.release() == []


def test_a_suspect_waits_for_those_inside_and_keeps_others_out_until_it_has_ended() -> None:
    engine = Engine()
    engine.suspect("s")
    engine.ask("a", "b")
    assert engine.ask("s2") == []
    assert engine.ask("c") == []
    assert engine.end("a") == []
    assert engine.end("b") == ["s2"]
    assert engine.ask("d") == []
    assert engine.gate.num_outside == 2
    assert engine.end("s2") == ["c", "d"]
    assert engine.ask("s3") == ["s3"], "an answer cleared it"


def test_suspects_go_one_at_a_time_in_order() -> None:
    engine = Engine()
    engine.suspect("p", "q", "r")
    assert engine.ask("p1", "q1", "r1") == ["p1"]
    assert engine.end("p1") == ["q1"]
    assert engine.end("q1") == ["r1"]
    assert engine.end("r1") == []


def test_after_a_long_turn_those_held_back_go_first() -> None:
    engine = Engine()
    engine.suspect("p", "q", "r")
    engine.ask("p1", "q1", "r1")
    engine.ask("a")
    engine.clock.now += TURN_SECONDS - 1
    assert engine.end("p1") == ["q1"]
    engine.clock.now += 1
    assert engine.end("q1") == ["a"]
    assert engine.ask("b") == [], "the turn of r is next"
    assert engine.end("a") == ["r1"]
    assert engine.end("r1") == ["b"]


def test_a_long_turn_goes_on_when_nobody_else_waits() -> None:
    engine = Engine()
    engine.suspect("p", "q")
    engine.ask("p1", "q1")
    engine.clock.now += 10 * TURN_SECONDS
    assert engine.end("p1") == ["q1"]


def test_waiting_for_the_engine_to_empty_is_no_part_of_the_turn() -> None:
    engine = Engine()
    engine.suspect("p", "q")
    engine.ask("a")
    engine.ask("p1", "q1")
    engine.ask("b")
    engine.clock.now += 10 * TURN_SECONDS
    assert engine.end("a") == ["p1"]
    assert engine.end("p1") == ["q1"]


def test_a_crash_among_others_makes_suspects_and_condemns_nobody() -> None:
    engine = Engine()
    for _ in range(3):
        engine.ask("a", "b")
        assert engine.crash("a", "b") == Loss(("a", "b"), ())
        engine.gate = Gate(engine.clock, engine.gate.suspects)
        engine.gate.suspects.clear(asks("a"))
        engine.gate.suspects.clear(asks("b"))


def test_the_first_crash_condemns_nobody_not_even_who_happened_to_be_alone() -> None:
    engine = Engine()
    engine.ask("a")
    assert engine.crash("a") == Loss(("a",), ())
    assert engine.gate.suspects.suspects(asks("a"))


def test_company_saves_from_being_condemned_whoever_is_suspected() -> None:
    engine = Engine()
    engine.ask("a", "b")
    engine.gate.suspects.suspect(map(asks, "ab"))
    assert engine.crash("a", "b") == Loss(("a", "b"), ())


def test_a_second_crash_alone_condemns() -> None:
    engine = Engine()
    engine.suspect("a", "s")
    engine.ask("s2")
    assert engine.crash("s2") == Loss(("s2",), ("s2",))
    assert engine.gate.suspects.condemns(asks("s3"))
    assert not engine.gate.suspects.condemns(asks("a"))


def test_twins_that_wait_are_condemned_with_it_and_others_wait_on() -> None:
    engine = Engine()
    engine.suspect("a", "s")
    engine.ask("s2", "s3", "a2")
    engine.ask("b")
    assert engine.crash("s2") == Loss(("s2",), ("s2", "s3"))
    assert engine.release() == ["b"]
    assert engine.end("b") == ["a2"]


def test_whoever_waits_becomes_a_suspect_when_a_twin_does() -> None:
    engine = Engine()
    engine.suspect("s")
    engine.ask("a")
    engine.ask("s2")
    engine.ask("a2", "b")
    engine.crash("a")
    assert engine.release() == ["b"], "s2 and a2 are suspects"
    assert engine.end("b") == ["s2"]
    assert engine.end("s2") == ["a2"]


def test_what_had_not_begun_is_innocent_but_for_what_is_compiled_before() -> None:
    engine = Engine()
    engine.ask("a", "b")
    engine.gate.add([asks("c", constraint=Constraint("regex", "x"))])
    engine.release()
    engine.crash("a")
    suspected = [engine.gate.suspects.suspects(asks(name)) for name in "ab"]
    assert suspected == [True, False]
    assert engine.gate.suspects.suspects(asks("c", constraint=Constraint("regex", "x")))


def test_a_suspect_whose_engine_is_lost_before_it_began_stays_a_suspect() -> None:
    engine = Engine()
    engine.suspect("s")
    engine.ask("s2")
    assert engine.crash() == Loss(("s2",), ())
    assert not engine.gate.suspects.condemns(asks("s"))


def test_who_was_given_up_is_company_until_the_engine_says_that_it_ended() -> None:
    engine = Engine()
    engine.suspect("s")
    engine.ask("a")
    assert engine.gate.give_up(["a"], answered=False) == ["a"]
    assert engine.ask("s2") == []
    engine.gate.end("a", answered=False)
    assert engine.release() == ["s2"]


def test_who_was_given_up_is_still_to_blame() -> None:
    engine = Engine()
    engine.ask("a")
    engine.gate.begin("a")
    engine.gate.give_up(["a"], answered=False)
    assert engine.gate.lose() == Loss(("a",), ())
    assert engine.gate.suspects.suspects(asks("a"))


@pytest.mark.parametrize(("answered", "suspect"), [(True, False), (False, True)])
def test_only_an_answer_clears(answered: bool, suspect: bool) -> None:
    engine = Engine()
    engine.suspect("s", "t")
    engine.ask("s2")
    engine.gate.give_up(["s2"], answered=answered)
    engine.gate.end("s2", answered=False)
    assert engine.gate.suspects.suspects(asks("s")) == suspect
    engine.ask("t2")
    engine.gate.end("t2", answered=answered)
    assert engine.gate.suspects.suspects(asks("t")) == suspect


def test_who_gives_up_outside_leaves_no_trace() -> None:
    engine = Engine()
    engine.suspect("s")
    engine.ask("a")
    engine.ask("s2")
    engine.ask("b")
    assert engine.gate.give_up(["s2", "b", "nobody"], answered=False) == []
    assert engine.gate.num_outside == 0
    assert engine.ask("c") == ["c"]


def test_when_the_only_suspect_outside_leaves_the_others_go_in_beside_those_inside() -> None:
    engine = Engine()
    engine.suspect("s")
    engine.ask("a")
    engine.ask("s2")
    engine.ask("b")
    engine.gate.give_up(["s2"], answered=False)
    assert engine.release() == ["b"]
    engine.ask("s3")
    engine.end("a", "b")
    engine.ask("c")
    engine.gate.give_up(["s3"], answered=False)
    assert engine.release() == [], "s3 is inside until the engine says otherwise"


@pytest.mark.parametrize("seed", range(40))
def test_in_any_traffic_suspects_are_alone_the_guilty_are_found_and_all_others_answered(seed: int) -> None:
    """Capitals break the engine down, sooner or later; the rest is innocent, and some leave."""
    rng = Random(seed)
    engine, names = Engine(), [f"{rng.choice('abcdefXY')}{number}" for number in range(60)]
    arriving, inside, left = list(names), set[str](), set[str]()
    answered, refused = set[str](), set[str]()
    again: list[str] = []

    def enter() -> None:
        for request in engine.gate.release():
            was_suspect = engine.gate.suspects.suspects(request)
            assert not was_suspect or not inside, f"{request.id} is not alone"
            inside.add(request.id)
        assert len(inside) <= 1 or not any(engine.gate.suspects.suspects(asks(each)) for each in inside)

    def crash() -> None:
        loss = engine.crash(*inside)
        assert set(loss.inside) == inside
        assert all(each[0].isupper() for each in loss.condemned), "an innocent was condemned"
        refused.update(loss.condemned)
        again.extend(each for each in loss.inside if each not in loss.condemned and each not in left)
        inside.clear()

    for _ in range(5000):
        engine.clock.now += rng.choice([0.1, 5.0, 20.0])
        come = arriving or again
        if come and rng.random() < 0.5:
            name = come.pop(rng.randrange(len(come)))
            if engine.gate.suspects.condemns(asks(name)):
                refused.add(name)
            else:
                engine.gate.add([asks(name)])
        elif inside:
            name = rng.choice(sorted(inside))
            if name[0].isupper():
                crash()
            elif rng.random() < 0.1:
                engine.gate.give_up([name], answered=False)
                left.add(name)
            else:
                engine.gate.end(name, answered=name not in left)
                answered.add(name)
                inside.remove(name)
        enter()
        if not (arriving or again or inside or engine.gate.num_outside):
            break
    assert (arriving, again, inside, engine.gate.num_outside) == ([], [], set(), 0), "somebody waits for ever"
    assert refused == {name for name in names if name[0].isupper()} - left
    assert answered | left == {name for name in names if name[0].islower()} | left
