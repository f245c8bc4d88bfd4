"""How long the engine has made no progress and what follows, and when to start it again. No clock, no process."""

from dataclasses import dataclass
from enum import Enum

SUSPECT_SECONDS = 5.0
LONGEST_BACKOFF_SECONDS = 30.0


class Verdict(Enum):
    """fine; silent: not ready, but it may come back; hung: it won't."""

    FINE = "fine"
    SILENT = "silent"
    HUNG = "hung"


@dataclass(slots=True)
class Watchdog:
    """Adds up silence tick by tick.

    A tick never counts for more than twice its length: when this process itself was stopped or busy for a minute (a
    suspended virtual machine, Ctrl-Z), that is no evidence against the engine, whose answers nobody read.
    """

    timeout_s: float
    silence_s: float = 0.0

    @property
    def tick_s(self) -> float:
        """How often to look."""
        return min(1.0, self.timeout_s / 20)

    @property
    def suspect_s(self) -> float:
        """Silence after which the engine no longer counts as ready."""
        return min(SUSPECT_SECONDS, self.timeout_s / 3)

    def progress(self) -> None:
        """A sign of progress came."""
        self.silence_s = 0.0

    def tick(self, elapsed_s: float) -> Verdict:
        """elapsed_s after the last look: what to make of the engine."""
        self.silence_s += min(elapsed_s, 2 * self.tick_s)
        if self.silence_s >= self.timeout_s:
            return Verdict.HUNG
        return Verdict.SILENT if self.silence_s >= self.suspect_s else Verdict.FINE


def backoff_s(failures: int) -> float:
    """How long to wait before the next start: not at all after a first failure, then 1 s, 2 s, 4 s and so on."""
    return 0.0 if failures < 2 else min(LONGEST_BACKOFF_SECONDS, 2.0 ** (failures - 2))
