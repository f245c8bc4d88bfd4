"""Where arrays lie in one block of memory, so that those that are needed at different times share it. Numbers only."""

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64  # bytes: a cache line


@dataclass(frozen=True, slots=True)
class Span:
    """An array of so many bytes that is in use from moment `first` to moment `last`, both included."""

    num_bytes: int
    first: int
    last: int


def place(spans: Sequence[Span]) -> tuple[list[int], int]:
    """An offset for each, in the same order, and the bytes of the whole.

    Each takes the lowest gap among those that are in use at the same time: first fit, by moment of first use.
    """
    offsets = [0] * len(spans)
    placed: list[int] = []
    for index in sorted(range(len(spans)), key=lambda i: spans[i].first):
        mine = spans[index]
        meets = [i for i in placed if spans[i].last >= mine.first and spans[i].first <= mine.last]
        at = 0
        for other in sorted(meets, key=lambda i: offsets[i]):
            if offsets[other] - at >= mine.num_bytes:
                break
            at = max(at, _aligned(offsets[other] + spans[other].num_bytes))
        offsets[index] = at
        placed.append(index)
    return offsets, max((o + _aligned(s.num_bytes) for o, s in zip(offsets, spans, strict=True)), default=0)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
