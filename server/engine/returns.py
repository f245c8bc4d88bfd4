"""When those who were refused are to come back: one place after another, as fast as places become free.

A virtual queue. Each refusal is handed the next place in it, so that those who come back when told find room instead of
each other; a place that is due is kept for its owner for a moment, and then given up. Many never come back: the queue
learns which share does, and is as long as those who are expected. Knows no requests.
"""

from bisect import insort
from collections.abc import Callable
from itertools import takewhile
from math import ceil

LONGEST_WAIT_SECONDS = 600
GRACE_SECONDS = 2.0  # how long a place that is due is kept
LEARN = 1 / 16  # weight of a place that was come for, or not, against all before it
FEWEST = 0.1  # share of those told that are always expected
EARLY_SECONDS = 0.05  # clocks and timers of clients


class Returns:
    """The places that were handed out and are not yet taken or given up. A mark says to whom."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()  # when the last place handed out becomes free
        self._coming = 1.0  # share of those told who come when told: the others need no place
        self._promised: list[tuple[float, str]] = []  # due, mark; by due

    def hand_out(self, mark: str, places_per_second: float) -> int:
        """The next place: whole seconds from now, rounded up, at least 1. Whose place was due has come for it."""
        self.take(mark)
        now = self._clock()
        self._last = max(self._last, now) + self._coming / places_per_second
        seconds = min(LONGEST_WAIT_SECONDS, max(1, ceil(self._last - now)))
        insort(self._promised, (now + seconds, mark))
        return seconds

    def kept_from(self, mark: str) -> int:
        """How many places are kept for others now, for as many as will come; none from one who has a place."""
        due = self._due_now()
        return 0 if mark in due else round(self._coming * len(due))

    def expects(self, mark: str) -> bool:
        """Whether this one has a place that is due."""
        return mark in self._due_now()

    def take(self, mark: str) -> None:
        """This one has come. If a place was kept, it is taken."""
        due = self._due_now()
        if mark in due:
            del self._promised[due.index(mark)]
            self._learn(1.0)

    def _learn(self, came: float) -> None:
        """The queue is as long as those who are expected in it."""
        before, now = self._coming, self._clock()
        self._coming = max(FEWEST, before + LEARN * (came - before))
        self._last = now + max(0.0, self._last - now) * self._coming / before

    def _due_now(self) -> list[str]:
        """Whose places are due: the marks at the queue's front. What nobody came for is forgotten."""
        now = self._clock()
        while self._promised and self._promised[0][0] < now - GRACE_SECONDS:
            self._promised.pop(0)
            self._learn(0.0)
        return [mark for _, mark in takewhile(lambda place: place[0] <= now + EARLY_SECONDS, self._promised)]
