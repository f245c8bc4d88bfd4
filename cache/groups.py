"""Which layers share block tables: those that see everything, and those with one window, are separate groups."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers with the same window. window counts the positions a token sees, itself included; None is all."""

    window: int | None
    layers: tuple[int, ...]


def group_layers(windows: Sequence[int | None]) -> tuple[KVGroup, ...]:
    """One group per distinct window of a model's layers, the full group first, then windows in ascending order.

    >>> group_layers([512, None, 512])
    (KVGroup(window=None, layers=(1,)), KVGroup(window=512, layers=(0, 2)))
    """
    distinct = sorted(set(windows), key=lambda window: -1 if window is None else window)
    return tuple(
        KVGroup(window, tuple(layer for layer, its in enumerate(windows) if its == window)) for window in distinct
    )


def most_blocks(window: int | None, num_tokens: int, *, block_size: int, max_chunk: int) -> int:
    """Blocks that one sequence of num_tokens holds at its worst moment, in a group with this window.

    A step needs what its first token sees behind itself (window - 1) and the chunk, at any alignment to blocks.
    """
    whole = -(-num_tokens // block_size)
    if window is None:
        return whole
    return min(whole, -(-(window - 1 + max_chunk) // block_size) + 1)
