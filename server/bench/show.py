"""The figures for people: a line that moves while the load runs, and a table at its end."""

import asyncio
import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from server.bench.client import Tally

REFRESH_SECONDS = 0.25
ROWS = {
    "time_to_first_token_ms": "time to first token",
    "inter_token_ms": "between tokens",
    "request_ms": "whole answer",
    "time_to_refusal_ms": "to a refusal, from its head",
}
COLUMNS = ("p50", "p90", "p95", "p99", "max")
LATE_MS = 20.0
BUSY = 0.8


def progress_line(tally: Tally, elapsed_s: float, pieces_per_second: float) -> Text:
    """How the run stands."""
    ended = ", ".join(f"{number} {kind}" for kind, number in sorted(tally.kinds.items())) or "none ended yet"
    return Text(f"{elapsed_s:6.1f} s  {tally.in_flight} in flight  {pieces_per_second:,.0f} tokens/s  {ended}")


async def follow(tally: Tally, console: Console) -> None:
    """Show the line until cancelled; on a terminal only."""
    if not console.is_terminal:
        return
    began, before, pieces = time.perf_counter(), time.perf_counter(), 0
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            now = time.perf_counter()
            rate = (tally.pieces - pieces) / max(now - before, REFRESH_SECONDS / 2)
            live.update(progress_line(tally, now - began, rate), refresh=True)
            before, pieces = now, tally.pieces
            await asyncio.sleep(REFRESH_SECONDS)


def show(figures: dict[str, Any], console: Console) -> None:
    """All that the JSON says, as a table and a few lines."""
    table = Table(title=f"{figures['requests']} requests in {figures['seconds']:,.1f} s", title_justify="left")
    for column in ("ms", *COLUMNS):
        table.add_column(column, justify="left" if column == "ms" else "right")
    for name, label in ROWS.items():
        if figures[name]["p50"] is not None:
            table.add_row(label, *(f"{figures[name][column]:,.1f}" for column in COLUMNS))
    console.print(table)
    for line in _lines(figures):
        console.print(line, markup=False, highlight=False)


def _lines(figures: dict[str, Any]) -> list[str]:
    outcomes = ", ".join(f"{number:,} {kind}" for kind, number in figures["outcomes"].items() if number)
    cached = f" ({figures['cached_tokens']:,} of them from the cache)" if figures["cached_tokens"] else ""
    lines = [
        f"outcomes    {outcomes or 'none'}",
        f"output      {figures['output_tokens_per_second']:,} tokens/s, {figures['output_tokens']:,} in all",
        f"input       {figures['input_tokens_per_second']:,} tokens/s, {figures['input_tokens']:,} in all{cached}",
        f"answers     {figures['requests_per_second']:,} a second",
    ]
    if good := figures.get("goodput"):
        targets = ", ".join(f"{name} {limit:g} ms" for name, limit in good["targets_ms"].items())
        share = good["requests"] / max(figures["requests"], 1)
        lines.append(f"goodput     {good['requests_per_second']:,} a second within {targets} ({share:.1%} of requests)")
    if back := figures.get("returned"):
        lines.append(f"came back   {back['requests']:,} when told, {back['share']:.1%} of them let in")
    lines += [f"  {times:,} x {detail}" for detail, times in figures["error_details"].items()]
    return lines + _doubts(figures)


def _doubts(figures: dict[str, Any]) -> list[str]:
    """Where the client itself may have been what was measured."""
    late, busy = figures["client_lag_ms"]["p99"] or 0.0, figures.get("client_cpu_share", 0.0)
    doubts = [f"requests were sent up to {late:,.0f} ms late (p99)"] if late > LATE_MS else []
    doubts += [f"this client used {busy:.0%} of a core"] if busy > BUSY else []
    return [f"beware: {' and '.join(doubts)}; part of what it saw is its own doing"] if doubts else []
