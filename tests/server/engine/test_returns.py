"""The virtual queue of those who were refused."""

import pytest

from server.engine.returns import FEWEST, GRACE_SECONDS, LONGEST_WAIT_SECONDS, Returns


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_places_follow_one_another_rounded_up(clock: Clock) -> None:
    returns = Returns(clock)
    assert [returns.hand_out("a", 2.0) for _ in range(5)] == [1, 1, 2, 2, 3]
    clock.now += 1.5
    assert returns.hand_out("a", 2.0) == 2  # the sixth place is due at 3 s


def test_after_a_quiet_time_the_queue_begins_anew(clock: Clock) -> None:
    returns = Returns(clock)
    for _ in range(10):
        returns.hand_out("a", 1.0)
    clock.now += 60.0
    assert returns.hand_out("a", 1.0) == 1


def test_there_is_a_longest_wait(clock: Clock) -> None:
    returns = Returns(clock)
    assert [returns.hand_out("a", 0.001) for _ in range(2)] == [LONGEST_WAIT_SECONDS] * 2


def test_a_place_is_kept_from_others_when_it_is_due_until_it_is_taken(clock: Clock) -> None:
    returns = Returns(clock)
    for mark in ("a", "b"):
        returns.hand_out(mark, 1.0)
    assert returns.kept_from("stranger") == 0
    clock.now += 1.0
    assert (returns.kept_from("stranger"), returns.kept_from("b"), returns.kept_from("a")) == (1, 1, 0)
    returns.take("stranger")
    assert returns.kept_from("stranger") == 1
    returns.take("a")
    assert (returns.kept_from("stranger"), returns.kept_from("a")) == (0, 0)
    clock.now += 1.0
    assert (returns.kept_from("stranger"), returns.kept_from("b")) == (1, 0)


def test_a_place_is_given_up_after_a_while(clock: Clock) -> None:
    returns = Returns(clock)
    returns.hand_out("a", 1.0)
    clock.now += 1.0 + GRACE_SECONDS
    assert returns.kept_from("stranger") == 1
    clock.now += 0.01
    assert returns.kept_from("stranger") == 0


def no_shows(returns: Returns, clock: Clock, count: int) -> None:
    for number in range(count):
        returns.hand_out(f"gone {number}", 1.0)
        clock.now += 2.0
    clock.now += 10.0
    assert returns.kept_from("stranger") == 0


def test_those_who_never_come_make_the_queue_no_longer(clock: Clock) -> None:
    """Ten refusals a place of a second each: a tenth of them is expected."""
    returns = Returns(clock)
    no_shows(returns, clock, 60)
    assert [returns.hand_out(str(number), 1.0) for number in range(20)] == [1] * 10 + [2] * 10
    clock.now += 1.0
    assert returns.kept_from("stranger") == round(FEWEST * 10)


def test_those_who_come_are_expected_again(clock: Clock) -> None:
    returns = Returns(clock)
    no_shows(returns, clock, 60)
    for number in range(60):
        wait = returns.hand_out(str(number), 1.0)
        clock.now += wait
        returns.take(str(number))
    assert [returns.hand_out(str(number), 1.0) for number in range(3)] == [1, 2, 3]


def test_what_was_promised_to_those_who_stay_away_is_given_to_others_at_once(clock: Clock) -> None:
    """A thousand were refused and none comes back: the next ones need not wait behind all of them."""
    returns = Returns(clock)
    for number in range(100):
        returns.hand_out(f"gone {number}", 1.0)
    for _ in range(40):
        clock.now += 1.0
        returns.kept_from("stranger")
    wait = returns.hand_out("new", 1.0)
    assert wait <= 30, "not the 61 that were promised to others"
    clock.now += wait
    assert returns.expects("new"), "though some of those are due later"


def test_who_is_refused_when_they_come_counts_as_one_who_came(clock: Clock) -> None:
    returns = Returns(clock)
    returns.hand_out("a", 1.0)
    clock.now += 1.0
    returns.hand_out("a", 1.0)
    assert returns.kept_from("stranger") == 0, "the old place is no longer kept"
    clock.now += 1.0
    assert returns.kept_from("stranger") == 1
