"""How the blocks of the pool are used, as a picture for people who watch. Knows no tree; decides nothing.

A state is one byte: FREE, CACHED, SHARED (by several live sequences), or OWNED + k for the sequence of colour k.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from cache.blocks import NULL_BLOCK

FREE, CACHED, SHARED, OWNED = 0, 1, 2, 3
NUM_COLOURS = 240


def block_states(kept: bytes | bytearray, tables: Iterable[tuple[Sequence[int], int]]) -> bytearray:
    """One state per block, the null block's included. kept[b]: whether the prefix tree wants block b to stay.

    tables are the live sequences' blocks, each with a colour of 0 .. NUM_COLOURS - 1.
    """
    states = bytearray(kept)  # 0 and 1 are FREE and CACHED
    for table, colour in tables:
        for block in table:
            if block != NULL_BLOCK:
                states[block] = OWNED + colour if states[block] < SHARED else SHARED
    return states


def shrink(states: bytes | bytearray, most_cells: int) -> tuple[int, bytes]:
    """At most so many cells, and how many blocks each stands for: it shows the busiest of them."""
    stride = -(-len(states) // most_cells) or 1
    if stride == 1:
        return 1, bytes(states)
    return stride, bytes(max(states[i : i + stride]) for i in range(0, len(states), stride))


def runs(cells: bytes) -> tuple[int, ...]:
    """state, count, state, count ...: long stretches of one state are two numbers."""
    return tuple(number for state, cell in groupby(cells) for number in (state, len(list(cell))))
