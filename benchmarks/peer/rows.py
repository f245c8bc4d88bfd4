"""The rows that kvell is judged by: what is compared with what, what it must reach, and what came out.

Ratios are always so that more is better: rates ours / theirs, times theirs / ours. Knows records, not how they came.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rich.table import Table

from benchmarks.peer.contests import Record

PEERS = "the best peer"
Verdict = Literal["stretch", "pass", "miss", "not measured", "no peer"]


@dataclass(frozen=True, slots=True)
class Row:
    """Our figure against a reference of the contest, the best peer's, or (against None) its own limit in seconds.

    at_least, stretch: ratios; None where nothing is asked. at_most: of our own figure, for against None.
    """

    title: str
    contest: str
    figure: str
    against: str | None = PEERS
    at_least: float | None = None
    stretch: float | None = None
    at_most: float | None = None
    less_is_better: bool = False


ROWS = (
    Row("1 sequence, decode, Q4_1", "decode-q4", "tok_s", at_least=1.6),
    Row("  as a share of the memory ceiling", "decode-q4", "tok_s", "memory ceiling", 0.70, 0.90),
    Row("1 sequence, decode, bf16 safetensors", "decode-bf16", "tok_s", at_least=1.1),
    Row("  as a share of the memory ceiling", "decode-bf16", "tok_s", "memory ceiling", 0.80, 0.92),
    Row("16 sequences, decode", "batch-16", "tok_s", PEERS, 3, 5),
    Row("32 sequences, decode", "batch-32", "tok_s", PEERS, 4.5, 8),
    Row("prompt of 512 tokens", "prompt-512", "tok_s", PEERS, 1.5, 2.5),
    Row("prompt of 4,096 tokens", "prompt-4096", "tok_s", PEERS, 2, 4),
    Row("HTTP, 1 client", "http-1", "tok_s", PEERS, 1.6, 2),
    Row("  time to first token", "http-1", "first_token_s", at_least=1, less_is_better=True),
    Row("HTTP, 16 clients in a burst", "http-16", "tok_s", PEERS, 3, 5),
    Row("  time to first token", "http-16", "first_token_s", at_least=3, less_is_better=True),
    Row("  as a share of the engine without HTTP", "http-16", "tok_s", "engine without HTTP", 0.85, 0.95),
    Row("HTTP, 16 clients, new shared prefix of 512", "http-shared", "tok_s", PEERS, 10, 18),
    Row("start to first token, seconds", "start", "first_token_s", None, at_most=5),
    Row("  against llama-server", "start", "first_token_s", stretch=1, less_is_better=True),
    Row("Gemma 3 270M, 1 sequence", "gemma-1", "tok_s", at_least=1),
    Row("Gemma 3 270M, 16 sequences", "gemma-16", "tok_s", PEERS, 1, 3),
    Row("decode beside a busy core, share of idle", "busy-decode", "tok_s", "idle", 0.4),
    Row("prompt beside a busy core, share of idle", "busy-prompt", "tok_s", "idle", 0.4),
)


@dataclass(frozen=True, slots=True)
class Result:
    """A row with its figures; NaN where nothing was measured. other: the name of what ours is compared with."""

    row: Row
    ours: float
    ours_range: tuple[float, float]
    other: str
    theirs: float
    theirs_range: tuple[float, float]
    ratio: float
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """Plain data; what was not measured is null."""
        row = self.row
        return {
            "row": row.title.strip(),
            "contest": row.contest,
            "figure": row.figure,
            "ours": _number(self.ours),
            "ours_range": [_number(value) for value in self.ours_range],
            "against": self.other,
            "theirs": _number(self.theirs),
            "theirs_range": [_number(value) for value in self.theirs_range],
            "ratio": _number(self.ratio),
            "at_least": row.at_least,
            "at_most": row.at_most,
            "stretch": row.stretch,
            "verdict": self.verdict,
        }


def judge(row: Row, record: Record | None) -> Result:
    """What the record says of the row."""
    nothing = (math.nan, math.nan)
    if record is None:
        return Result(row, math.nan, nothing, "", math.nan, nothing, math.nan, "not measured")
    ours = record.median(record.ours, row.figure)
    other = (record.best if row.against == PEERS else row.against) or ""
    theirs = record.median(other, row.figure)
    ratio = (theirs / ours if row.less_is_better else ours / theirs) if ours and theirs else math.nan
    return Result(
        row,
        ours,
        _range(record.values(record.ours, row.figure)),
        other,
        theirs,
        _range(record.values(other, row.figure)),
        ratio,
        _verdict(row, ours, ratio),
    )


def _verdict(row: Row, ours: float, ratio: float) -> Verdict:
    if math.isnan(ours):
        return "not measured"
    if row.at_most is not None:
        return "pass" if ours <= row.at_most else "miss"
    if math.isnan(ratio):
        return "no peer"
    if row.stretch is not None and ratio >= row.stretch:
        return "stretch"
    return "pass" if row.at_least is None or ratio >= row.at_least else "miss"


def judge_all(records: Mapping[str, Record], rows: Iterable[Row] = ROWS) -> list[Result]:
    """Every row, also those that nobody measured."""
    return [judge(row, records.get(row.contest)) for row in rows]


def table_of(results: Iterable[Result], title: str) -> Table:
    """For people."""
    table = Table(title=title)
    for column in ("", "kvell", "range", "against", "its", "range", "ratio", "at least", "stretch", ""):
        table.add_column(column, justify="left" if column in ("", "against") else "right")
    for result in results:
        row = result.row
        asked = f"< {row.at_most:g}" if row.at_most is not None else _text(row.at_least)
        table.add_row(
            row.title,
            _text(result.ours),
            _text(*result.ours_range),
            result.other,
            _text(result.theirs),
            _text(*result.theirs_range),
            "" if math.isnan(result.ratio) else f"{result.ratio:.2f}",
            asked,
            _text(row.stretch),
            result.verdict,
        )
    return table


def _range(values: list[float]) -> tuple[float, float]:
    return (min(values), max(values)) if values else (math.nan, math.nan)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _text(*values: float | None) -> str:
    if any(value is None or math.isnan(value) for value in values):
        return ""
    return " to ".join(f"{value:,.0f}" if value is not None and value >= 100 else f"{value:.3g}" for value in values)
