"""From what clients saw to figures: percentiles, rates, goodput. Knows no time but that of the outcomes.

Latencies count from the moment when a request was due. A request that timed out counts with the time that it waited,
since leaving it out would make a server look the better the more it drops.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from server.bench.load import Run
from server.bench.outcome import KINDS, Outcome

PERCENTS = (50, 90, 95, 99)
MOST_DETAILS = 5
REFUSED = ("429", "503")


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that at least `percent` of all values do not exceed (nearest rank); None of no values."""
    if not values:
        return None
    return sorted(values)[max(math.ceil(percent / 100 * len(values)), 1) - 1]


def spread_ms(seconds: Iterable[float]) -> dict[str, float | None]:
    """Percentiles and the maximum, in milliseconds."""
    ordered = sorted(seconds)
    points = {f"p{percent}": percentile(ordered, percent) for percent in PERCENTS} | {"max": percentile(ordered, 100)}
    return {name: None if value is None else round(1000 * value, 2) for name, value in points.items()}


Measure = Callable[[Outcome], float | None]


def _gap(percent: float) -> Measure:
    return lambda outcome: percentile(outcome.gaps, percent)


MEASURES: dict[str, Measure] = {
    "ttft": lambda outcome: outcome.first_s,
    "e2e": lambda outcome: outcome.took_s,
    "itl-mean": lambda outcome: sum(gaps) / len(gaps) if (gaps := outcome.gaps) else None,
    "itl-max": _gap(100),
    **{f"itl-p{percent}": _gap(percent) for percent in PERCENTS},
}


@dataclass(frozen=True, slots=True)
class Target:
    """A good answer's measure is at most limit_ms."""

    measure: str
    limit_ms: float

    @classmethod
    def parse(cls, text: str) -> "Target":
        """ "ttft:2000". Raises ValueError with what is allowed."""
        name, _, limit = text.partition(":")
        try:
            found = cls(name, float(limit))
        except ValueError:
            raise ValueError(f"{text!r} is no target; one is NAME:MILLISECONDS, as in ttft:2000") from None
        if name not in MEASURES or not 0 < found.limit_ms < math.inf:
            raise ValueError(f"{text!r} is no target; allowed: {', '.join(MEASURES)}, then : and milliseconds")
        return found

    def holds(self, outcome: Outcome) -> bool:
        """An answer of one token has no gaps, and so none that is too long."""
        value = MEASURES[self.measure](outcome)
        return value is None or 1000 * value <= self.limit_ms


def is_good(outcome: Outcome, targets: Sequence[Target]) -> bool:
    """A whole answer within all targets."""
    return outcome.kind == "ok" and all(target.holds(outcome) for target in targets)


def summarise(run: Run, targets: Sequence[Target] = ()) -> dict[str, Any]:
    """The figures of a run. Tokens are those of whole answers, rates those over the time to the last answer."""
    outcomes = run.outcomes
    whole = [each for each in outcomes if each.kind == "ok"]
    seconds = max(max((each.ended for each in outcomes), default=run.began) - run.began, 1e-9)
    tokens_in, tokens_out = (sum(each.input_tokens for each in whole), sum(each.output_tokens for each in whole))
    return {
        "benchmark": "serve",
        "requests": len(outcomes),
        "outcomes": {kind: sum(each.kind == kind for each in outcomes) for kind in KINDS},
        "errors": len(outcomes) - len(whole),
        "error_details": dict(Counter(each.detail for each in outcomes if each.detail).most_common(MOST_DETAILS)),
        "seconds": round(seconds, 3),
        "load_seconds": round(run.load_s, 3),
        "input_tokens": tokens_in,
        "cached_tokens": sum(each.cached_tokens for each in whole),
        "output_tokens": tokens_out,
        "requests_per_second": round(len(whole) / seconds, 3),
        "input_tokens_per_second": round(tokens_in / seconds, 1),
        "output_tokens_per_second": round(tokens_out / seconds, 1),
        **_latencies(outcomes),
        **_goodput(run, targets),
        **_returns(outcomes),
    }


def _latencies(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The time to a refusal counts from its complete head, as the door can decide by that; all else from when due."""
    waited = [each for each in outcomes if each.kind in ("ok", "timeout")]
    firsts = [each.took_s if each.first_s is None else each.first_s for each in waited]
    refused = [each for each in outcomes if each.kind in REFUSED]
    return {
        "time_to_first_token_ms": spread_ms(firsts),
        "inter_token_ms": spread_ms(gap for each in waited for gap in each.gaps),
        "request_ms": spread_ms(each.took_s for each in waited),
        "time_to_refusal_ms": spread_ms(each.answered - each.head_sent for each in refused),
        "time_to_status_ms": spread_ms(each.answered - each.due for each in outcomes if each.answered),
        "client_lag_ms": spread_ms(each.sent - each.due for each in outcomes),
    }


def _goodput(run: Run, targets: Sequence[Target]) -> dict[str, Any]:
    """Good answers of the requests sent over the time in which they were sent."""
    if not targets:
        return {}
    good = sum(is_good(each, targets) for each in run.outcomes)
    per_second = round(good / max(run.load_s, 1e-9), 3)
    named = {target.measure: target.limit_ms for target in targets}
    return {"goodput": {"targets_ms": named, "requests": good, "requests_per_second": per_second}}


def _returns(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Of the requests that came back when told: how many were let in."""
    returned = [each for each in outcomes if each.returned]
    if not returned:
        return {}
    let_in = sum(each.kind not in REFUSED for each in returned)
    return {"returned": {"requests": len(returned), "admitted": let_in, "share": round(let_in / len(returned), 4)}}
