"""People see what the JSON says, and where the client itself may be to blame."""

import asyncio
import io
from typing import Any

import pytest
from rich.console import Console

from server.bench.client import Tally
from server.bench.figures import Target, summarise
from server.bench.load import Run
from server.bench.outcome import Outcome
from server.bench.show import follow, progress_line, show


def shown(run: Run, *targets: Target, **more: Any) -> str:
    out = io.StringIO()
    show({**summarise(run, targets), **more}, Console(file=out, width=120))
    return out.getvalue()


def test_the_table_shows_figures_errors_and_leaves_out_what_there_is_none_of() -> None:
    failed = Outcome(0, due=0.0, head_sent=0.1, answered=0.35, ended=1.0, kind="503", detail="HTTP 503: [busy]")
    text = shown(Run([failed], load_s=1.0))
    assert "1 x HTTP 503: [busy]" in text
    assert "1 503" in text
    assert "250.0" in text
    assert "time to first token" not in text


def test_goodput_and_returns_are_told() -> None:
    good = Outcome(0, due=0.0, ended=1.0, pieces=[0.5, 0.6], returned=True)
    text = shown(Run([good], load_s=1.0), Target("ttft", 2000))
    assert "1.0 a second within ttft 2000 ms (100.0% of requests)" in text
    assert "1 when told, 100.0% of them let in" in text


@pytest.mark.parametrize(
    ("sent", "share", "doubt"),
    [
        (0.0, 0.1, ""),
        (0.5, 0.1, "500 ms late"),
        (0.0, 0.95, "95% of a core"),
        (0.5, 0.95, "late (p99) and this client"),
    ],
)
def test_a_client_that_is_the_bottleneck_says_so(sent: float, share: float, doubt: str) -> None:
    outcome = Outcome(0, due=0.0, sent=sent, ended=1.0, pieces=[0.9])
    text = shown(Run([outcome], load_s=1.0), client_cpu_share=share)
    assert doubt in text
    assert ("beware" in text) == bool(doubt)


def test_the_moving_line_says_how_it_stands() -> None:
    tally = Tally(in_flight=3)
    tally.kinds.update({"ok": 5, "503": 2})
    assert str(progress_line(tally, 12.0, 456.7)) == "  12.0 s  3 in flight  457 tokens/s  2 503, 5 ok"


async def test_nothing_moves_where_nobody_sees_it() -> None:
    out = io.StringIO()
    await follow(Tally(), Console(file=out))
    assert out.getvalue() == ""


async def test_on_a_terminal_the_line_moves_until_the_end() -> None:
    out = io.StringIO()
    watching = asyncio.create_task(follow(Tally(), Console(file=out, force_terminal=True, width=100)))
    while "in flight" not in out.getvalue():
        await asyncio.sleep(0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
