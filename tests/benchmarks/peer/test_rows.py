"""The rows: ratios the right way up, verdicts at their limits, and a table that shows them."""

import io
import json

import pytest
from rich.console import Console

from benchmarks.peer.contests import Record
from benchmarks.peer.rows import ROWS, Row, judge, judge_all, table_of


def record(ours: list[float], theirs: list[float], figure: str = "tok_s") -> Record:
    return Record(
        "kvell",
        figure,
        tries={"llama": {figure: theirs[0]}} if theirs else {},
        rounds={
            "kvell": [{figure: value} for value in ours],
            "llama": [{figure: value} for value in theirs],
            "idle": [{figure: 200.0}],
        },
    )


RATE = Row("rate", "c", "tok_s", at_least=2.0, stretch=3.0)


@pytest.mark.parametrize(
    ("ours", "verdict"), [(199.0, "miss"), (200.0, "pass"), (299.0, "pass"), (300.0, "stretch"), (900.0, "stretch")]
)
def test_a_rate_is_judged_by_its_ratio(ours: float, verdict: str) -> None:
    result = judge(RATE, record([ours, ours, 1.0], [100.0, 100.0, 900.0]))
    assert result.ratio == ours / 100
    assert result.verdict == verdict
    assert result.other == "llama"
    assert result.ours_range == (1.0, ours)
    assert result.theirs_range == (100.0, 900.0)


@pytest.mark.parametrize(("ours", "verdict"), [(0.5, "pass"), (0.51, "miss")])
def test_a_time_is_better_when_it_is_shorter(ours: float, verdict: str) -> None:
    row = Row("time", "c", "first_token_s", at_least=3, less_is_better=True)
    result = judge(row, record([ours], [1.5], "first_token_s"))
    assert result.ratio == pytest.approx(1.5 / ours)
    assert result.verdict == verdict


@pytest.mark.parametrize(("ours", "verdict"), [(5.0, "pass"), (5.1, "miss")])
def test_a_limit_of_our_own_needs_no_peer(ours: float, verdict: str) -> None:
    row = Row("start", "c", "tok_s", None, at_most=5)
    assert judge(row, record([ours], [])).verdict == verdict


def test_a_share_is_of_the_named_reference_whatever_the_peers_did() -> None:
    result = judge(Row("share", "c", "tok_s", "idle", at_least=0.4), record([90.0], [1000.0]))
    assert (result.ratio, result.verdict, result.other) == (0.45, "pass", "idle")


def test_what_was_not_measured_is_said_and_never_passes() -> None:
    assert judge(RATE, None).verdict == "not measured"
    assert judge(RATE, record([], [100.0])).verdict == "not measured"
    assert judge(RATE, record([100.0], [])).verdict == "no peer"
    assert judge(Row("start", "c", "tok_s", None, at_most=5), record([], [])).verdict == "not measured"


def test_a_row_without_a_limit_passes_below_its_stretch() -> None:
    row = Row("start", "c", "tok_s", stretch=1)
    assert judge(row, record([50.0], [100.0])).verdict == "pass"
    assert judge(row, record([100.0], [100.0])).verdict == "stretch"


def test_the_rows_of_the_issue() -> None:
    """Issue 3's table, so that no limit is loosened by accident."""
    asked = {(row.contest, row.figure, row.against): (row.at_least, row.stretch, row.at_most) for row in ROWS}
    peer = "the best peer"
    assert asked == {
        ("decode-q4", "tok_s", peer): (1.6, None, None),
        ("decode-q4", "tok_s", "memory ceiling"): (0.7, 0.9, None),
        ("decode-bf16", "tok_s", peer): (1.1, None, None),
        ("decode-bf16", "tok_s", "memory ceiling"): (0.8, 0.92, None),
        ("batch-16", "tok_s", peer): (3, 5, None),
        ("batch-32", "tok_s", peer): (4.5, 8, None),
        ("prompt-512", "tok_s", peer): (1.5, 2.5, None),
        ("prompt-4096", "tok_s", peer): (2, 4, None),
        ("http-1", "tok_s", peer): (1.6, 2, None),
        ("http-1", "first_token_s", peer): (1, None, None),
        ("http-16", "tok_s", peer): (3, 5, None),
        ("http-16", "first_token_s", peer): (3, None, None),
        ("http-16", "tok_s", "engine without HTTP"): (0.85, 0.95, None),
        ("http-shared", "tok_s", peer): (10, 18, None),
        ("start", "first_token_s", None): (None, None, 5),
        ("start", "first_token_s", peer): (None, 1, None),
        ("gemma-1", "tok_s", peer): (1, None, None),
        ("gemma-16", "tok_s", peer): (1, 3, None),
        ("busy-decode", "tok_s", "idle"): (0.4, None, None),
        ("busy-prompt", "tok_s", "idle"): (0.4, None, None),
    }
    assert all(row.less_is_better == (row.figure == "first_token_s" and row.against == peer) for row in ROWS)


def test_the_json_has_null_for_what_nobody_measured() -> None:
    results = judge_all({"decode-q4": record([10.0], [4.0])})
    plain = json.loads(json.dumps([result.to_json() for result in results], allow_nan=False))
    assert plain[0]["ratio"] == 2.5
    assert plain[0]["verdict"] == "pass"
    assert plain[2]["ours"] is None
    assert plain[2]["verdict"] == "not measured"


def test_the_table_shows_every_row() -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(table_of(judge_all({"decode-q4": record([10.0], [4.0])}), "title"))
    lines = out.getvalue().splitlines()
    decode = next(line for line in lines if "1 sequence, decode, Q4_1" in line)
    assert all(text in decode for text in ("10", "llama", "2.50", "1.6", "pass"))
    assert sum("not measured" in line for line in lines) == len(ROWS) - 2
    assert any("no peer" in line for line in lines), "the ceiling was not measured"
