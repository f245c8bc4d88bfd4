"""When an engine counts as silent, when as hung, and when it is started again."""

import pytest

from server.engine.watchdog import Verdict, Watchdog, backoff_s


def ticks(dog: Watchdog, count: int) -> list[Verdict]:
    return [dog.tick(dog.tick_s) for _ in range(count)]


def test_silence_is_suspect_after_five_seconds_and_hung_after_the_timeout() -> None:
    verdicts = ticks(Watchdog(timeout_s=30.0), 30)
    assert verdicts == [Verdict.FINE] * 4 + [Verdict.SILENT] * 25 + [Verdict.HUNG]


def test_short_timeouts_shorten_everything() -> None:
    dog = Watchdog(timeout_s=3.0)
    assert (dog.tick_s, dog.suspect_s) == (pytest.approx(0.15), pytest.approx(1.0))
    verdicts = ticks(dog, 21)
    assert verdicts.index(Verdict.SILENT) == 6
    assert verdicts.index(Verdict.HUNG) in (19, 20)


def test_progress_ends_the_silence() -> None:
    dog = Watchdog(timeout_s=30.0)
    ticks(dog, 29)
    dog.progress()
    assert ticks(dog, 4) == [Verdict.FINE] * 4


def test_a_sleep_of_our_own_is_no_evidence_against_the_engine() -> None:
    """A suspended machine or Ctrl-Z: an hour has passed, in which nobody read what the engine said."""
    dog = Watchdog(timeout_s=30.0)
    assert dog.tick(3600.0) is Verdict.FINE
    assert dog.silence_s == 2.0


def test_starts_are_spaced_further_and_further_apart() -> None:
    assert [backoff_s(failures) for failures in range(9)] == [0, 0, 1, 2, 4, 8, 16, 30, 30]
