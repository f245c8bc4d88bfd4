"""Arrays that are in use at one time never share a byte; those that aren't do."""

from itertools import combinations
from random import Random

import pytest

from model.program.placement import ALIGNMENT, Span, place


@pytest.mark.parametrize("seed", range(50))
def test_what_is_in_use_at_one_time_lies_apart(seed: int) -> None:
    rng = Random(seed)
    spans = []
    for _ in range(rng.randint(1, 40)):
        first = rng.randrange(20)
        spans.append(Span(rng.choice([1, 48, 64, 65, 1000]), first, first + rng.randrange(6)))
    offsets, total = place(spans)
    for (a, at), (b, bt) in combinations(zip(spans, offsets, strict=True), 2):
        together = a.first <= b.last and b.first <= a.last
        assert not together or at + a.num_bytes <= bt or bt + b.num_bytes <= at
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert max(offset + span.num_bytes for span, offset in zip(spans, offsets, strict=True)) <= total


def test_a_chain_of_equal_arrays_needs_two() -> None:
    assert place([Span(640, i, i + 1) for i in range(30)])[1] == 1280


def test_a_gap_is_filled() -> None:
    assert place([Span(64, 0, 9), Span(64, 0, 1), Span(64, 0, 9), Span(64, 2, 9)])[0][3] == 64


def test_nothing_needs_nothing() -> None:
    assert place([]) == ([], 0)
