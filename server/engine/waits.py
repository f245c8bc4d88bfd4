"""How long the next one would wait: from how far back others stood in the line, and how long they then waited.

API process. Knows no rates beforehand and no limits; a request's place is counted as fair shares between owners make
it: whoever asks for little passes by the many requests of another.
"""

from collections import Counter
from collections.abc import Callable

NOTICEABLE_SECONDS = 0.3  # a shorter wait is a step's length, and says nothing of a line
CALM_SECONDS = 1.0  # so long without a line, and the next one is a new one
LEARN = 1 / 16  # weight of a new wait against all before it


class Waits:
    """Those who wait, and how the line moved."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[str, tuple[str, float, int]] = {}  # owner, since when, place at first; by request id
        self._owners: Counter[str] = Counter()
        self._began = clock()
        self._emptied = self._began - CALM_SECONDS
        self._places = self._seconds = 0.0  # running sums over those who were let in after a wait

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting

    @property
    def standing_s(self) -> float:
        """How long there has been a line. One that was gone for a moment is still the same."""
        return 0.0 if self._calm else self._clock() - self._began

    @property
    def _calm(self) -> bool:
        return not self._waiting and self._clock() - self._emptied >= CALM_SECONDS

    @property
    def places_per_second(self) -> float | None:
        """How fast the line moves when there is one; None as long as nobody had to wait."""
        return self._places / self._seconds if self._seconds else None

    def place(self, owner: str) -> int:
        """Which place the next request of this owner would have, from 1 on."""
        owners = len(self._owners) + (owner not in self._owners)
        return min(len(self._waiting) + 1, (self._owners[owner] + 1) * owners)

    def join(self, request_id: str, owner: str) -> None:
        """It waits from now on."""
        if self._calm:
            self._began = self._clock()
        self._waiting[request_id] = owner, self._clock(), self.place(owner)
        self._owners[owner] += 1

    def let_in(self, request_id: str) -> None:
        """Its turn has come, and tells how fast the line moves."""
        _, since, place = self._waiting[request_id]
        waited = self._clock() - since
        self.leave(request_id)
        if waited >= NOTICEABLE_SECONDS:
            keep = 1 - LEARN
            self._places, self._seconds = keep * self._places + place, keep * self._seconds + waited

    def leave(self, request_id: str) -> None:
        """It waits no longer, and was not let in."""
        owner, _, _ = self._waiting.pop(request_id)
        self._owners[owner] -= 1
        if not self._owners[owner]:
            del self._owners[owner]
        if not self._waiting:
            self._emptied = self._clock()
