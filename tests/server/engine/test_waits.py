"""The line's speed is learned from those who waited, and places count as fair shares make them."""

import pytest

from server.engine.waits import CALM_SECONDS, LEARN, NOTICEABLE_SECONDS, Waits


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_line_s_speed_is_places_over_seconds(clock: Clock) -> None:
    """Four wait, and one is let in each second."""
    waits = Waits(clock)
    assert waits.places_per_second is None
    for name in "abcd":
        waits.join(name, "")
    for name in "abcd":
        clock.now += 1.0
        waits.let_in(name)
    assert waits.places_per_second == pytest.approx(1.0)


def test_newer_waits_weigh_more(clock: Clock) -> None:
    waits = Waits(clock)
    for seconds in [1.0] * 20 + [4.0] * 60:
        waits.join("x", "")
        clock.now += seconds
        waits.let_in("x")
    assert waits.places_per_second == pytest.approx(0.25, rel=0.1)
    assert 0 < LEARN < 0.5


def test_a_step_s_length_is_no_wait(clock: Clock) -> None:
    """Else a server at rest would look fast, and the first overload would find its forecasts too rosy."""
    waits = Waits(clock)
    for number in range(100):
        waits.join(str(number), "")
        clock.now += NOTICEABLE_SECONDS - 0.01
        waits.let_in(str(number))
    assert waits.places_per_second is None


def test_who_gives_up_says_nothing_of_the_line(clock: Clock) -> None:
    waits = Waits(clock)
    waits.join("a", "")
    clock.now += 100.0
    waits.leave("a")
    assert waits.places_per_second is None
    assert (len(waits), "a" in waits, waits.standing_s) == (0, False, 100.0)


def test_a_line_stands_until_it_was_gone_for_a_while(clock: Clock) -> None:
    waits = Waits(clock)
    waits.join("a", "")
    assert waits.standing_s == 0.0
    clock.now += 2.0
    waits.join("b", "")
    clock.now += 1.0
    waits.leave("a")
    waits.let_in("b")
    clock.now += CALM_SECONDS - 0.25
    assert waits.standing_s == 3.75, "gone for a moment"
    waits.join("c", "")
    waits.leave("c")
    assert waits.standing_s == 3.75
    clock.now += CALM_SECONDS
    assert waits.standing_s == 0.0
    waits.join("d", "")
    clock.now += 0.5
    assert waits.standing_s == 0.5


def test_who_asks_for_little_passes_by_the_many_of_another(clock: Clock) -> None:
    waits = Waits(clock)
    assert waits.place("few") == 1
    for number in range(10):
        waits.join(f"many {number}", "many")
    assert (waits.place("many"), waits.place("few")) == (11, 2)
    waits.join("few 0", "few")
    assert (waits.place("many"), waits.place("few"), waits.place("third")) == (12, 4, 3)


def test_a_turn_out_of_line_counts_with_the_place_it_had(clock: Clock) -> None:
    """The second owner's first request had place 2 behind ten others, and waited 2 s: a place a second."""
    waits = Waits(clock)
    for number in range(10):
        waits.join(f"many {number}", "many")
    waits.join("few", "few")
    clock.now += 2.0
    waits.let_in("few")
    assert waits.places_per_second == pytest.approx(1.0)
