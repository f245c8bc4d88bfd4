"""How a look is drawn: figures, the rate over the last minutes, the KV cache's blocks as a map. No clock, no I/O.

Everything fits the width it is given; what a server calls itself can't steer the terminal.
"""

import colorsys
from collections.abc import Iterator, Sequence
from itertools import groupby, islice

from rich.console import Group as Lines
from rich.text import Text

from server.chat_client import printable
from server.top.looks import Group, Look, Picture

FREE, CACHED, SHARED, OWNED = 0, 1, 2, 3  # from OWNED on: used by one sequence, whose colour it is
MARKS = "·░▓█"  # of these, so that the map can be read without colours, too
BARS = " ▁▂▃▄▅▆▇█"
GOLDEN_ANGLE = 137.508  # neighbours in number are far apart in hue
MIN_ROWS = 2
MIB = 2**20


def draw(look: Look, rates: Sequence[float], *, width: int, height: int) -> Lines:
    """The whole view; rates: decode tokens per second, oldest first."""
    head = [_title(look), *flow(figures(look), width)]
    if rates:
        head.append(spark(rates, width))
    words = [list(flow(blocks(group), width)) for group in look.groups]
    free = height - len(head) - sum(map(len, words)) - 1
    rows = max(free // max(len(words), 1), MIN_ROWS)
    body: list[Text] = []
    for index, lines in enumerate(words):
        body += lines
        if index < len(look.picture):
            body += block_map(look.picture[index], width=width, rows=rows)
    return Lines(*head, *body)


def _title(look: Look) -> Text:
    state = (printable(look.state), "green" if look.state == "ready" else "bold red")
    return Text.assemble("kvell  ", state, "  ", (printable(look.model), "bold"), no_wrap=True, overflow="ellipsis")


def figures(look: Look) -> list[tuple[str, str]]:
    """Names and values, the most wanted first."""
    rates, first = look.tokens_per_second, look.time_to_first_token_seconds
    return [
        ("decode", f"{rates.decode:.1f} tokens/s"),
        ("prompt", f"{rates.prompt:.1f} tokens/s"),
        ("first token", "-" if first is None else f"{first * 1000:.0f} ms" if first < 1 else f"{first:.1f} s"),
        ("running", str(look.running)),
        ("waiting", str(look.waiting)),
        ("preemptions", str(look.preemptions)),
    ]


def flow(pairs: Sequence[tuple[str, str]], width: int) -> Iterator[Text]:
    """The pairs side by side, in as many lines as they need."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for name, value in pairs:
        piece = Text.assemble((f"{name} ", "dim"), (value, "bold"))
        if line and len(line) + 3 + len(piece) > width:
            yield line
            line = Text(no_wrap=True, overflow="ellipsis")
        line.append("   " if line else "").append(piece)
    yield line


def spark(rates: Sequence[float], width: int) -> Text:
    """The latest rates as bars, the highest of them full."""
    shown = list(islice(reversed(rates), width))[::-1]
    most = max(*shown, 1.0)
    bars = "".join(BARS[min(int(rate / most * (len(BARS) - 1) + 0.5), len(BARS) - 1)] for rate in shown)
    return Text(bars.rjust(width), style="cyan", no_wrap=True)


def blocks(group: Group) -> list[tuple[str, str]]:
    """A group's blocks in words."""
    return [
        ("KV cache", f"{group.total} blocks"),
        ("used", f"{group.used} ({group.used * group.block_bytes / MIB:.1f} MiB)"),
        ("cached", str(group.cached)),
        ("free", str(group.free)),
    ]


def block_map(picture: Picture, *, width: int, rows: int) -> Iterator[Text]:
    """At most `rows` lines of one character per cell; where cells are more, several share a character."""
    cells = [state for state, count in zip(picture.runs[::2], picture.runs[1::2], strict=False) for _ in range(count)]
    per_mark = max(-(-len(cells) // (width * rows)), 1)
    marks = [_commonest(cells[at : at + per_mark]) for at in range(0, len(cells), per_mark)]
    for at in range(0, len(marks), width):
        line = Text(no_wrap=True)
        for state, run in groupby(marks[at : at + width]):
            line.append(MARKS[min(state, OWNED)] * len(list(run)), style=colour(state))
        yield line


def _commonest(states: Sequence[int]) -> int:
    """Of several as many, the busiest."""
    return max(set(states), key=lambda state: (states.count(state), state))


def colour(state: int) -> str:
    """In rich's words."""
    if state < OWNED:
        return ("bright_black", "blue", "yellow")[state]
    red, green, blue = colorsys.hls_to_rgb((state - OWNED) * GOLDEN_ANGLE % 360 / 360, 0.55, 0.65)
    return f"#{int(red * 255):02x}{int(green * 255):02x}{int(blue * 255):02x}"
