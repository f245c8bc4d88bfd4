"""What the service tells whoever counts: `server.metrics.Metrics` satisfies this without knowing it."""

from typing import Protocol

from server.engine.request import StepStats
from server.engine.wire import Ready


class Observer(Protocol):
    """Who counts what happens; `server.metrics.Metrics`."""

    def engine_ready(self, info: Ready, *, restarted: bool) -> None: ...

    def engine_responsive(self, responsive: bool) -> None: ...

    def engine_lost(self) -> None: ...

    def step(self, stats: StepStats) -> None: ...

    def tokens_waiting(self, tokens: int) -> None: ...

    def discarded(self, tokens: int) -> None: ...
