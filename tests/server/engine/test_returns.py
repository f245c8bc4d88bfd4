"""The virtual queue of those who were refused."""

import pytest

from server.engine.returns import GRACE_SECONDS, LONGEST_WAIT_SECONDS, Returns


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
