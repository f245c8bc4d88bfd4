"""Tokens per second over the last seconds, worked out when asked."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

WINDOW_SECONDS = 10.0


@dataclass(slots=True, eq=False)  # registries keep collectors by identity
class Rates(Collector):
    """Averages over WINDOW_SECONDS; they fall to 0 without traffic."""

    clock: Callable[[], float]
    window: deque[tuple[float, int, int]] = field(default_factory=deque)  # time, prompt and decode tokens, oldest first

    def add(self, prompt_tokens: int, decode_tokens: int) -> None:
        """So many were computed just now."""
        self.window.append((self.clock(), prompt_tokens, decode_tokens))
        self._forget()

    def _forget(self) -> None:
        oldest = self.clock() - WINDOW_SECONDS
        while self.window and self.window[0][0] <= oldest:
            self.window.popleft()

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        family = GaugeMetricFamily(
            "kvell_tokens_per_second",
            f"Tokens computed per second, averaged over the last {WINDOW_SECONDS:.0f} s.",
            labels=["phase"],
        )
        prompt, decode = self.per_second()
        family.add_metric(["prompt"], prompt)
        family.add_metric(["decode"], decode)
        yield family

    def per_second(self) -> tuple[float, float]:
        """Prompt and decode tokens."""
        self._forget()
        prompt, decode = (sum(entry[i] for entry in self.window) for i in (1, 2))
        return prompt / WINDOW_SECONDS, decode / WINDOW_SECONDS
