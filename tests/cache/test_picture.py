"""The picture of the blocks says of each what the allocators and tables say."""

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.groups import KVGroup
from cache.manager import CacheManager, CacheSequence
from cache.picture import CACHED, FREE, OWNED, SHARED, block_states, runs, shrink


def test_each_state_of_a_block_shows() -> None:
    states = block_states(bytes([0, 1, 1, 0, 0, 1]), [([2, 3, 0], 7), ([2, 4], 8)])
    assert list(states) == [FREE, CACHED, SHARED, OWNED + 7, OWNED + 8, CACHED]


def test_a_third_owner_is_shared_too() -> None:
    assert list(block_states(bytes(2), [([1], 0), ([1], 1), ([1], 2)])) == [FREE, SHARED]


def advance(manager: CacheManager, tokens: list[int]) -> CacheSequence:
    """A sequence whose tokens are all computed."""
    sequence = manager.open(tokens)
    missing = len(tokens) - sequence.num_computed
    assert manager.reserve(sequence, missing)
    manager.commit(sequence, missing)
    return sequence


def test_the_numbers_are_those_of_the_stats() -> None:
    manager = CacheManager([KVGroup(None, (0,))], [20], block_size=4, max_chunk=64)
    shared = [1, 2, 3, 4, 5, 6, 7, 8]
    manager.close(advance(manager, [*range(50, 63)]))
    one, other = advance(manager, [*shared, 9]), advance(manager, [*shared, 10])
    (states,) = manager.picture([(one, 0), (other, 1)])
    (usage,) = manager.stats()
    assert len(states) == 19
    assert (states.count(FREE), states.count(CACHED)) == (usage.free, usage.cached) == (12, 3)
    assert [states.count(each) for each in (SHARED, OWNED, OWNED + 1)] == [2, 1, 1]


@pytest.mark.parametrize(("cells", "stride"), [(10, 1), (7, 1), (6, 2), (3, 3), (1, 7)])
def test_a_cell_for_many_blocks_shows_the_busiest(cells: int, stride: int) -> None:
    states = bytes([0, 0, 1, 0, 5, 2, 0])
    assert shrink(states, cells) == (stride, bytes(max(states[i : i + stride]) for i in range(0, 7, stride)))


@given(st.binary(max_size=200), st.integers(1, 50))
def test_runs_are_the_cells(states: bytes, most: int) -> None:
    stride, cells = shrink(states, most)
    assert len(cells) <= most
    assert len(cells) * stride >= len(states)
    pairs = list(zip(runs(cells)[::2], runs(cells)[1::2], strict=True))
    assert bytes(chain.from_iterable([state] * count for state, count in pairs)) == cells
    assert all(one != other for (one, _), (other, _) in pairwise(pairs))
