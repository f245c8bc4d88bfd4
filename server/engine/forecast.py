"""When the engine should be ready again, from how long it took the last time. Knows no process."""

from collections.abc import Callable
from math import ceil

FIRST_LOAD_GUESS_SECONDS = 10.0


class Forecast:
    """load_s: how long the last start took, or a guess. ready_at: when the engine got ready, or is expected to."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.load_s = FIRST_LOAD_GUESS_SECONDS
        self.ready_at = clock() + self.load_s

    def starts(self, pause_s: float = 0.0) -> float:
        """A start begins after that pause. Returns the time of its beginning."""
        began = self._clock() + pause_s
        self.ready_at = began + self.load_s
        return began

    def started(self, began: float) -> None:
        """The start that began then is done."""
        self.ready_at = self._clock()
        self.load_s = self.ready_at - began

    @property
    def up_s(self) -> float:
        """How long the engine has been ready."""
        return self._clock() - self.ready_at

    def remaining(self, *, hung_for_another_s: float | None = None) -> int:
        """Whole seconds until it should be ready, at least 1. A hung one is given up first, after so many seconds."""
        seconds = -self.up_s if hung_for_another_s is None else hung_for_another_s + self.load_s
        return max(1, ceil(seconds))
