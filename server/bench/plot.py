"""A run as a picture: what became of the requests, how long they waited, how evenly tokens came. Needs matplotlib."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from server.bench.figures import REFUSED, Target, is_good
from server.bench.load import Run
from server.bench.outcome import Outcome

BINS = 40
GOOD, LATE, REFUSAL, FAILURE = "#2a9d8f", "#e9c46a", "#8d99ae", "#d62828"
INK, FIRST, BETWEEN = "#22333b", "#3a6ea5", "#2a9d8f"


def draw(run: Run, figures: dict[str, Any], targets: Sequence[Target], title: str, path: Path) -> None:
    """Write the picture; its kind goes by the path's suffix. Raises OSError and ValueError where that can't be."""
    figure = Figure(figsize=(12, 7.5), layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    (became, waited), (spread, rate) = figure.subplots(2, 2)
    _became(became, run, targets)
    _waited(waited, run, targets)
    _spread(spread, run, figures)
    _rate(rate, run)
    for axes in (became, waited, rate):
        axes.set_xlim(0, _edges(run)[-1])
    for axes in (became, waited, spread, rate):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=9)
    figure.savefig(path, dpi=130)


def _edges(run: Run) -> list[float]:
    """The bins' edges, in seconds from the beginning."""
    end = max(max((each.ended for each in run.outcomes), default=run.began) - run.began, 0.001)
    return [end * number / BINS for number in range(BINS + 1)]


def _per_second(times: Sequence[float], edges: Sequence[float]) -> list[float]:
    """How many of the times fall into each bin, over its width."""
    counts = Counter(min(int(each / edges[1]), BINS - 1) for each in times)
    return [counts[number] / edges[1] for number in range(BINS)]


def _due(run: Run, outcomes: Sequence[Outcome]) -> list[float]:
    return [each.due - run.began for each in outcomes]


def _became(axes: Axes, run: Run, targets: Sequence[Target]) -> None:
    """Requests a second by the time when they were due, stacked by what became of them."""
    parts: dict[str, tuple[str, list[Outcome]]] = {
        "answered in time" if targets else "answered": (GOOD, []),
        "answered late": (LATE, []),
        "refused": (REFUSAL, []),
        "failed": (FAILURE, []),
    }
    kinds = [each for _, each in parts.values()]
    for outcome in run.outcomes:
        late = outcome.kind == "ok" and not is_good(outcome, targets)
        which = 0 if outcome.kind == "ok" else 2 if outcome.kind in REFUSED else 3
        kinds[1 if late else which].append(outcome)
    edges, below = _edges(run), [0.0] * BINS
    for label, (colour, each) in parts.items():
        if each:
            heights = _per_second(_due(run, each), edges)
            axes.bar(
                edges[:-1], heights, edges[1], bottom=below, align="edge", color=colour, label=f"{label} ({len(each)})"
            )
            below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set_title("Requests a second, by when they were due", loc="left", fontsize=10)
    axes.set_xlabel("seconds")
    if any(below):
        axes.legend(fontsize=8, frameon=False, loc="upper right", ncols=2)
    axes.margins(y=0.2)


def _waited(axes: Axes, run: Run, targets: Sequence[Target]) -> None:
    """The wait for the first token of each answer, and the time to each refusal."""
    answered = [each for each in run.outcomes if each.first_s is not None]
    axes.scatter(
        _due(run, answered),
        [each.first_s or 0.0 for each in answered],
        s=9,
        color=FIRST,
        alpha=0.6,
        label="first token",
    )
    refused = [each for each in run.outcomes if each.kind in REFUSED]
    if refused:
        waits = [max(each.answered - each.head_sent, 1e-3) for each in refused]
        axes.scatter(_due(run, refused), waits, s=6, color=REFUSAL, alpha=0.6, label="refusal")
    for target in targets:
        if target.measure == "ttft":
            axes.axhline(target.limit_ms / 1000, color=FAILURE, linewidth=1, linestyle="--", label="target")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title("Seconds to the first token, and to refusals", loc="left", fontsize=10)
    axes.set_xlabel("seconds")
    axes.legend(fontsize=8, frameon=False)


def _spread(axes: Axes, run: Run, figures: dict[str, Any]) -> None:
    """Which share of waits is no longer than so much."""
    answered = [each for each in run.outcomes if each.pieces]
    series = (
        ("first token", "time_to_first_token_ms", FIRST, [each.first_s or 0.0 for each in answered]),
        ("between tokens", "inter_token_ms", BETWEEN, [gap for each in answered for gap in each.gaps]),
    )
    for label, name, colour, values in series:
        if values:
            ordered = sorted(1000 * value for value in values)
            shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
            p50, p99 = (figures[name][point] for point in ("p50", "p99"))
            axes.plot(ordered, shares, color=colour, linewidth=1.8, label=f"{label}: p50 {p50:,.0f}, p99 {p99:,.0f} ms")
            axes.axvline(p99, color=colour, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlim(left=1.0)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(0, 1.02)
    axes.set_title("Share of waits that are no longer (dotted: p99)", loc="left", fontsize=10)
    axes.set_xlabel("milliseconds")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False, loc="upper left")


def _rate(axes: Axes, run: Run) -> None:
    """Tokens a second as they arrived, and how many requests were open meanwhile."""
    edges = _edges(run)
    pieces = [piece - run.began for each in run.outcomes for piece in each.pieces]
    axes.bar(edges[:-1], _per_second(pieces, edges), edges[1], align="edge", color=GOOD, alpha=0.55)
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    spans = [(each.sent - run.began, each.ended - run.began) for each in run.outcomes]
    in_flight = [sum(start <= middle < end for start, end in spans) for middle in middles]
    beside = axes.twinx()
    beside.plot(middles, in_flight, color=INK, linewidth=1.2)
    beside.spines[["top"]].set_visible(False)
    beside.set_ylim(bottom=0)
    beside.tick_params(labelsize=9)
    axes.set_title("Tokens a second (bars) and requests open (line, right)", loc="left", fontsize=10)
    axes.set_xlabel("seconds")
