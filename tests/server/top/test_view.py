"""How a look is drawn: what is said, that it fits, and that a server can't steer the terminal with it."""

import io
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from rich.console import Console

from server.top.looks import Look, Picture
from server.top.view import MARKS, block_map, colour, draw, spark
from tests.helpers.live_looks import AT_WORK, IDLE


def look(fields: dict[str, Any] = AT_WORK, **changes: Any) -> Look:
    return msgspec.convert(fields | changes, Look)


def drawn(seen: Look, *, rates: Sequence[float] = (), width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    console.print(draw(seen, rates, width=width, height=height))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text.splitlines()


def test_it_says_what_the_live_view_says() -> None:
    text = " ".join(" ".join(drawn(look())).split())
    rates = "decode 123.4 tokens/s prompt 12.5 tokens/s first token 42 ms"
    assert text.startswith(f"kvell ready tiny {rates} running 2 waiting 0 preemptions 7 ")
    assert " KV cache 1024 blocks used 10 (0.2 MiB) cached 6 free 1008 " in text


@pytest.mark.parametrize(("seconds", "shown"), [(None, "-"), (0.0421, "42 ms"), (2.25, "2.2 s")])
def test_the_first_token_s_time_is_readable(seconds: float | None, shown: str) -> None:
    assert f"first token {shown}" in " ".join(drawn(look(time_to_first_token_seconds=seconds)))


@pytest.mark.parametrize("width", [10, 20, 39, 80, 200])
@pytest.mark.parametrize("height", [3, 10, 24, 60])
@pytest.mark.parametrize("fields", [IDLE, AT_WORK])
def test_it_fits_however_narrow(fields: dict[str, Any], width: int, height: int) -> None:
    lines = drawn(look(fields), rates=[1.0, 2.0], width=width, height=height)
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= max(height, 14)  # of the smallest terminals the end is cut off


def test_the_map_shows_each_state_in_order() -> None:
    (line,) = block_map(Picture(1, (3, 2, 4, 1, 2, 2, 1, 3, 0, 4)), width=20, rows=2)
    assert line.plain == "███▓▓░░░····"
    assert {str(span.style) for span in line.spans} == {colour(state) for state in (0, 1, 2, 3, 4)}


def test_every_sequence_has_a_colour_of_its_own() -> None:
    assert len({colour(state) for state in range(60)}) == 60
    assert len(set(MARKS)) == 4


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_of_many_blocks_several_share_a_mark_and_the_commonest_wins(rows: int) -> None:
    lines = list(block_map(Picture(1, (0, 5000, 3, 5000)), width=50, rows=rows))
    assert len(lines) == rows
    text = "".join(line.plain for line in lines)
    assert abs(text.count("·") - text.count("█")) <= 1
    assert text == "".join(sorted(text, key="·█".index))


def test_a_mark_of_several_blocks_is_what_most_of_them_are() -> None:
    (line,) = block_map(Picture(1, (0, 3, 3, 1) * 100), width=50, rows=1)
    assert line.plain == "·" * 50


def test_windowed_groups_have_a_map_each() -> None:
    two = look(groups=AT_WORK["groups"] * 2, picture=AT_WORK["picture"] * 2)
    assert sum("KV cache" in line for line in drawn(two)) == 2


def test_without_a_picture_the_words_remain() -> None:
    assert any("KV cache" in line for line in drawn(look(picture=[])))


def test_the_rate_is_drawn_against_its_highest() -> None:
    assert spark([0.0, 5.0, 10.0], 6).plain == "    ▄█"
    assert spark([10.0] * 500, 6).plain == "██████"
    assert spark([0.0], 3).plain == "   "


@pytest.mark.parametrize("nasty", ["a\x1b[31mb", "a\nb", "[red]a[/red]", "a\u202eb"])
def test_a_model_s_name_is_only_text(nasty: str) -> None:
    lines = drawn(look(model=nasty, state=nasty))
    assert all(line.isprintable() for line in lines)
    assert "[red]a[/red]" in lines[0] or "[red]" not in nasty
