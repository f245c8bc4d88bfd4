"""The figures add up, count from when requests were due, and hide nothing that went wrong."""

import json
from collections.abc import Sequence

import pytest

from server.bench.figures import Target, is_good, percentile, spread_ms, summarise
from server.bench.load import Run
from server.bench.outcome import KINDS, Outcome


def outcome(due: float, pieces: Sequence[float], ended: float, **more: object) -> Outcome:
    made = Outcome(0, due=due, sent=due, head_sent=due, ended=ended, pieces=list(pieces))
    made.answered = pieces[0] if pieces else 0.0
    for name, value in more.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (1, 1), (50, 5), (51, 6), (90, 9), (99, 10), (100, 10)])
def test_percentiles_are_nearest_rank(percent: float, expected: int) -> None:
    assert percentile([3, 1, 2, 5, 4, 10, 9, 8, 7, 6], percent) == expected


def test_percentiles_of_nothing_are_nothing() -> None:
    assert percentile([], 50) is None
    assert set(spread_ms([]).values()) == {None}
    assert set(spread_ms([0.0012345]).values()) == {1.23}


def test_a_hundred_values_have_each_percentile_at_its_rank() -> None:
    spread = spread_ms([number / 1000 for number in range(100, 0, -1)])
    assert spread == {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


def test_the_summary_adds_up() -> None:
    run = Run(began=10.0, load_s=2.0)
    run.outcomes = [
        outcome(10, [10.5, 10.6, 10.9], 11, input_tokens=7, cached_tokens=4, output_tokens=3),
        outcome(10, [10.7], 12, input_tokens=5, output_tokens=1),
        outcome(11, [11.1, 13.9], 14, output_tokens=2, kind="cut stream", detail="cut"),
        outcome(11, [], 11.5, head_sent=11.25, answered=11.375, kind="503", detail="busy"),
    ]
    figures = summarise(run)
    assert json.loads(json.dumps(figures)) == figures
    assert (figures["requests"], figures["errors"]) == (4, 2)
    assert figures["outcomes"] == dict.fromkeys(KINDS, 0) | {"ok": 2, "cut stream": 1, "503": 1}
    assert figures["error_details"] == {"cut": 1, "busy": 1}
    assert (figures["seconds"], figures["load_seconds"]) == (4.0, 2.0)
    assert (figures["input_tokens"], figures["cached_tokens"], figures["output_tokens"]) == (12, 4, 4)
    assert figures["output_tokens_per_second"] == 1.0
    assert figures["input_tokens_per_second"] == 3.0
    assert figures["requests_per_second"] == 0.5
    assert figures["time_to_first_token_ms"] == {"p50": 500, "p90": 700, "p95": 700, "p99": 700, "max": 700}
    assert figures["inter_token_ms"] == {"p50": 100, "p90": 300, "p95": 300, "p99": 300, "max": 300}
    assert figures["request_ms"]["max"] == 2000.0
    assert figures["time_to_refusal_ms"]["max"] == 125.0
    assert "goodput" not in figures
    assert "returned" not in figures


def test_a_run_without_requests_has_figures_too() -> None:
    assert summarise(Run(began=3.0))["requests"] == 0


def test_a_wait_counts_from_when_it_was_due_and_not_from_when_a_late_client_sent_it() -> None:
    """A server that stalls makes clients late; leaving that out would be its reward (coordinated omission)."""
    late = outcome(10, [16.0, 16.5], 17, sent=15.0, head_sent=15.0)
    figures = summarise(Run([late], began=10.0, load_s=1.0), [Target("ttft", 2000.0)])
    assert figures["time_to_first_token_ms"]["p50"] == 6000.0
    assert figures["request_ms"]["p50"] == 7000.0
    assert figures["time_to_status_ms"]["p50"] == 6000.0
    assert figures["client_lag_ms"]["p50"] == 5000.0
    assert figures["goodput"]["requests"] == 0


def test_a_timeout_counts_with_the_time_it_waited() -> None:
    run = Run([outcome(0, [0.1], 0.2), outcome(0, [], 60.0, kind="timeout")], load_s=1.0)
    figures = summarise(run)
    assert figures["time_to_first_token_ms"]["max"] == 60_000.0
    assert figures["request_ms"]["max"] == 60_000.0


@pytest.mark.parametrize(
    ("target", "holds"),
    [
        (Target("ttft", 500), True),
        (Target("ttft", 499), False),
        (Target("e2e", 3500), True),
        (Target("e2e", 3499), False),
        (Target("itl-max", 1000), True),
        (Target("itl-max", 999), False),
        (Target("itl-p50", 250), True),
        (Target("itl-p50", 249), False),
        (Target("itl-mean", 501), True),
        (Target("itl-mean", 499), False),
    ],
)
def test_a_target_is_the_most_that_is_good(target: Target, holds: bool) -> None:
    """Gaps: 250, 250 and 1000 ms; the mean is 500."""
    assert target.holds(outcome(0, [0.5, 0.75, 1.0, 2.0], 3.5)) == holds


def test_good_is_whole_and_within_all_targets() -> None:
    targets = [Target("ttft", 1000), Target("itl-p95", 100)]
    assert is_good(outcome(0, [0.5, 0.6], 1), targets)
    assert not is_good(outcome(0, [0.5, 0.7], 1), targets)
    assert not is_good(outcome(0, [0.5, 0.6], 1, kind="cut stream"), targets)
    assert is_good(outcome(0, [0.5], 1), targets), "one token has no gaps"


def test_goodput_is_over_the_time_in_which_requests_were_sent() -> None:
    run = Run([outcome(0, [0.5], 0.6), outcome(0, [5.0], 9.0), outcome(1, [1.5], 1.6)], load_s=4.0)
    assert summarise(run, [Target("ttft", 1000)])["goodput"] == {
        "targets_ms": {"ttft": 1000},
        "requests": 2,
        "requests_per_second": 0.5,
    }


def test_those_that_came_back_are_counted_apart() -> None:
    kinds = ("ok", "503", "429", "timeout")
    run = Run([outcome(0, [], 1, kind=kind, returned=True) for kind in kinds] + [outcome(0, [], 1, kind="503")])
    assert summarise(run)["returned"] == {"requests": 4, "admitted": 2, "share": 0.5}


@pytest.mark.parametrize(
    "text", ["ttft", "ttft:", "ttft:x", "ttft:0", "ttft:-1", "ttft:inf", "ttft:nan", "tpot:5", "itl:5"]
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no target"):
        Target.parse(text)


def test_a_target_is_read() -> None:
    assert Target.parse("itl-p95:150") == Target("itl-p95", 150.0)
