"""What one can say of the cache in a sentence, each as a small story. Blocks have 4 tokens here."""

import gc

import pytest

from cache.groups import KVGroup, group_layers
from cache.manager import CacheManager, CacheSequence, GroupUsage
from cache.node import Node

BLOCK = 4


def make(
    windows: tuple[int | None, ...] = (None,),
    num_blocks: int | tuple[int, ...] = 20,
    *,
    max_chunk: int = 16,
    prefix_cache: bool = True,
) -> CacheManager:
    groups = group_layers(windows)
    sizes = (num_blocks,) * len(groups) if isinstance(num_blocks, int) else num_blocks
    return CacheManager(groups, sizes, block_size=BLOCK, max_chunk=max_chunk, prefix_cache=prefix_cache)


def compute(manager: CacheManager, seq: CacheSequence, upto: int | None = None) -> None:
    """Run the sequence in chunks up to this many tokens (all it has)."""
    while rest := (len(seq.tokens) if upto is None else upto) - seq.num_computed:
        num_tokens = min(rest, manager.max_chunk)
        assert manager.reserve(seq, num_tokens)
        manager.commit(seq, num_tokens)
        manager.check()


def remember(manager: CacheManager, tokens: list[int], **root: str) -> None:
    """Compute tokens and leave them in the cache."""
    seq = manager.open(list(tokens), **root)
    compute(manager, seq)
    manager.close(seq)


def hit(manager: CacheManager, tokens: list[int], **root: str) -> int:
    """How many tokens a newcomer would find."""
    seq = manager.open(list(tokens), **root)
    manager.close(seq)
    manager.check()
    return seq.num_cached


# -- matching


def test_a_prefix_is_found_block_by_block() -> None:
    manager = make()
    remember(manager, list(range(10)))  # two full blocks
    assert hit(manager, list(range(20))) == 8
    assert hit(manager, [*range(6), 99, 99, 99]) == 4
    assert hit(manager, [99, *range(1, 10)]) == 0


@pytest.mark.parametrize(("length", "expected"), [(4, 0), (5, 4), (8, 4), (9, 8)])
def test_the_last_token_is_always_computed(length: int, expected: int) -> None:
    manager = make()
    remember(manager, list(range(12)))
    assert hit(manager, list(range(length))) == expected


def test_equal_blocks_after_different_beginnings_are_different() -> None:
    manager = make()
    remember(manager, [1, 1, 1, 1, 5, 5, 5, 5, 0])
    remember(manager, [2, 2, 2, 2, 0])
    assert hit(manager, [2, 2, 2, 2, 5, 5, 5, 5, 0]) == 4


def test_tokens_with_equal_hashes_are_different() -> None:
    assert hash((-1, 0, 0, 0)) == hash((-2, 0, 0, 0))
    manager = make()
    remember(manager, [-1, 0, 0, 0, 7])
    assert hit(manager, [-2, 0, 0, 0, 7]) == 0


def test_namespaces_and_salts_share_nothing() -> None:
    manager = make()
    remember(manager, list(range(9)), namespace="a", salt="b")
    assert hit(manager, list(range(9)), namespace="a", salt="b") == 8
    assert hit(manager, list(range(9)), namespace="a") == 0
    assert hit(manager, list(range(9)), salt="b") == 0
    assert hit(manager, list(range(9)), namespace="b", salt="a") == 0


def test_roots_that_serve_nothing_are_forgotten() -> None:
    manager = make()
    for salt in range(100):
        assert hit(manager, [1, 2, 3], salt=str(salt)) == 0
    assert not manager._tree.roots


def test_generated_tokens_are_found_too() -> None:
    manager = make()
    seq = manager.open([1, 2, 3])
    for token in range(4, 10):
        compute(manager, seq)
        seq.tokens.append(token)
    manager.close(seq)
    assert hit(manager, list(range(1, 20))) == 8


def test_without_prefix_cache_nothing_is_matched_kept_or_promised() -> None:
    manager = make(prefix_cache=False)
    first = manager.open(list(range(16)))
    assert manager.reserve(first, 16)
    second = manager.open(list(range(16)))
    assert not manager.blocked(second)
    manager.commit(first, 16)
    assert manager.match(second) == 0
    manager.close(first)
    manager.close(second)
    assert manager.stats() == (GroupUsage(used=0, cached=0, free=19),)


# -- owning


def test_a_shared_prefix_takes_its_blocks_once() -> None:
    manager = make()
    remember(manager, list(range(8)))
    first, second = manager.open([*range(8), 50]), manager.open([*range(8), 60])
    assert first.tables[0] == second.tables[0]
    assert manager.stats() == (GroupUsage(used=2, cached=0, free=17),)
    manager.close(first)
    assert manager.stats() == (GroupUsage(used=2, cached=0, free=17),)
    manager.close(second)
    assert manager.stats() == (GroupUsage(used=0, cached=2, free=17),)


def test_two_that_compute_the_same_at_once_end_up_with_one_copy() -> None:
    manager = make()
    first, second = manager.open([1, 2, 3]), manager.open([1, 2, 3])
    for seq in (first, second):
        compute(manager, seq)
        seq.tokens.append(4)
    assert first.tables[0] != second.tables[0]
    compute(manager, first)
    compute(manager, second)
    assert first.tables[0] == second.tables[0]
    assert manager.stats() == (GroupUsage(used=1, cached=0, free=18),)


def test_reserving_is_all_or_nothing() -> None:
    manager = make(num_blocks=5)
    first = manager.open(list(range(12)))
    assert manager.reserve(first, 12)
    second = manager.open(list(range(100, 120)))
    assert not manager.can_reserve(second, 5)
    assert not manager.reserve(second, 5)
    assert second.tables == ([],)
    assert manager.reserve(second, 4)
    manager.check()


def test_reserving_twice_reserves_once() -> None:
    manager = make()
    seq = manager.open(list(range(9)))
    assert manager.reserve(seq, 9)
    assert manager.reserve(seq, 5)
    assert len(seq.tables[0]) == 3


def test_committing_more_than_was_reserved_is_a_mistake() -> None:
    manager = make()
    seq = manager.open(list(range(9)))
    assert manager.reserve(seq, 4)
    with pytest.raises(AssertionError, match="5 tokens committed, room for 4"):
        manager.commit(seq, 5)


# -- eviction


def test_the_oldest_leaf_goes_first_and_parents_after_their_children() -> None:
    manager = make(num_blocks=7)
    remember(manager, [*range(8), 1, 1, 1, 1])  # blocks a b c
    remember(manager, [*range(8), 2, 2, 2, 2])  # blocks a b d
    seq = manager.open(list(range(100, 112)))
    assert manager.reserve(seq, 12)  # the two never used, and the oldest leaf
    assert hit(manager, [*range(8), 1, 1, 1, 1, 0]) == 8
    assert hit(manager, [*range(8), 2, 2, 2, 2, 0]) == 12
    manager.close(seq)


def test_what_was_used_lately_stays() -> None:
    manager = make(num_blocks=5)
    for first in (1, 2, 3, 4):
        remember(manager, [first] * 4)
    assert hit(manager, [1] * 5) == 4  # used again
    remember(manager, [5] * 4)
    assert [hit(manager, [first] * 5) for first in (1, 2, 3, 4, 5)] == [4, 0, 4, 4, 4]


def test_what_somebody_owns_is_not_evicted() -> None:
    manager = make(num_blocks=5)
    owner = manager.open(list(range(9)))
    compute(manager, owner, upto=8)
    other = manager.open(list(range(100, 120)))
    assert manager.reserve(other, 8)
    assert not manager.reserve(other, 9)
    manager.close(owner)
    assert manager.reserve(other, 9)
    manager.check()


def test_memory_stays_flat_without_the_garbage_collector() -> None:
    """Evicted and discarded nodes hold no cycles, so they are gone at once."""
    manager = make((None, 6), 8)
    gc.collect()
    gc.disable()
    try:
        for first in range(300):
            remember(manager, [first] * 10)
            failed = manager.open([1000 + first] * 10)
            compute(manager, failed)
            remember(manager, [1000 + first] * 16)  # on top of it, so it goes with it
            manager.close(failed, discard=True)
        del failed
        num_nodes = sum(type(thing) is Node for thing in gc.get_objects())
    finally:
        gc.enable()
    assert num_nodes <= 7 + 1, "a node per block and the root"


# -- promises


def test_the_second_waits_for_the_first_and_takes_what_it_computed() -> None:
    manager = make()
    first, second = manager.open(list(range(20))), manager.open([*range(16), 77, 78])
    assert not manager.blocked(second)  # nobody has begun
    assert manager.reserve(first, 8)
    assert manager.blocked(second)
    assert not manager.blocked(first)
    assert manager.match(second) == 0
    manager.commit(first, 8)
    assert manager.match(second) == 8
    assert manager.blocked(second)  # the rest of the common prefix is promised already
    compute(manager, first)
    assert manager.match(second) == 8
    assert not manager.blocked(second)
    assert (second.num_computed, second.num_cached, first.num_cached) == (16, 16, 0)


def test_sixteen_cold_requests_compute_a_common_prefix_once() -> None:
    manager = make(num_blocks=100)
    prefix = list(range(32))
    crowd = [manager.open([*prefix, 100 + i, 1]) for i in range(16)]
    num_computed = 0
    while any(seq.num_computed < len(seq.tokens) for seq in crowd):
        for seq in crowd:
            manager.match(seq)
            rest = len(seq.tokens) - seq.num_computed
            if rest and not manager.blocked(seq):
                compute(manager, seq, upto=seq.num_computed + min(rest, 8))
                num_computed += min(rest, 8)
    assert num_computed == len(prefix) + 16 * 2


@pytest.mark.parametrize("discard", [False, True])
def test_when_the_first_is_gone_a_waiter_takes_over(discard: bool) -> None:
    manager = make()
    first, second, third = (manager.open(list(range(20))) for _ in range(3))
    assert manager.reserve(first, 8)
    assert manager.blocked(second)
    manager.close(first, discard=discard)
    assert not manager.blocked(second)
    assert not manager.blocked(third)
    assert manager.reserve(second, 8)
    assert manager.blocked(third)
    manager.check()


def test_a_prompt_that_ends_in_the_promised_block_does_not_wait_for_it() -> None:
    manager = make()
    first = manager.open(list(range(8)))
    assert manager.reserve(first, 8)
    assert not manager.blocked(manager.open(list(range(4))))  # its last token is in that block
    assert not manager.blocked(manager.open(list(range(3))))
    assert manager.blocked(manager.open(list(range(5))))


def test_decoding_promises_nothing_and_waits_for_nobody() -> None:
    manager = make()
    first = manager.open([0, 1, 2])
    compute(manager, first)
    first.tokens.append(3)
    assert manager.reserve(first, 1)
    newcomer = manager.open(list(range(20)))
    assert not manager.blocked(newcomer)
    assert manager.reserve(newcomer, 16)
    first.tokens.append(4)
    assert not manager.blocked(first)
    manager.check()


def test_a_longer_prompt_goes_on_from_the_end_of_another_ones_promise() -> None:
    manager = make()
    short, long = manager.open(list(range(8))), manager.open(list(range(16)))
    assert manager.reserve(short, 8)
    assert manager.blocked(long)
    manager.commit(short, 8)
    assert manager.match(long) == 8
    assert manager.reserve(long, 8)
    third = manager.open(list(range(20)))
    assert third.num_cached == 8
    assert manager.blocked(third)


# -- windows


def test_a_window_gives_back_what_the_next_token_does_not_see() -> None:
    manager = make((None, 6))
    seq = manager.open(list(range(14)))
    compute(manager, seq, upto=8)  # position 8 sees 3..8
    assert seq.tables[1][0] != 0
    compute(manager, seq, upto=9)  # position 9 sees 4..9
    assert seq.tables[1][0] == 0
    assert 0 not in seq.tables[1][1:]
    assert 0 not in seq.tables[0]
    assert manager.stats()[1] == GroupUsage(used=2, cached=1, free=16)


def test_without_prefix_cache_what_is_given_back_is_free() -> None:
    manager = make((None, 6), prefix_cache=False)
    seq = manager.open(list(range(14)))
    compute(manager, seq)
    assert manager.stats()[1] == GroupUsage(used=2, cached=0, free=17)


def test_a_long_sequence_runs_in_a_small_windowed_pool() -> None:
    manager = make((None, 6), (60, 7))  # 6 + 16 - 1 positions touch at most 7 blocks - 1
    seq = manager.open(list(range(200)))
    compute(manager, seq)
    assert sum(block != 0 for block in seq.tables[1]) <= 3


def test_a_hit_needs_the_last_window_only() -> None:
    manager = make((None, 6))
    remember(manager, list(range(17)))
    while manager._allocators[1].num_cached > 2:  # the oldest were given back first
        manager._tree.evict(1)
    seq = manager.open(list(range(30)))
    assert seq.num_cached == 16  # position 16 sees 11..16: blocks 2 and 3
    assert seq.tables[1][:2] == [0, 0]
    assert 0 not in seq.tables[1][2:]
    manager.check()


def test_a_hit_is_shorter_where_the_window_is_gone() -> None:
    manager = make((None, 6))
    remember(manager, list(range(13)))
    remember(manager, [*range(4), 50, 50, 50, 50])
    path = manager._tree.enter("", "")
    nodes = manager._tree.find(path, list(range(13)), 3)
    manager._tree.leave(path)
    manager._tree._drop_block(nodes[2], 1)
    assert hit(manager, list(range(13))) == 8
    manager._tree._drop_block(nodes[1], 1)
    assert hit(manager, list(range(13))) == 4


def test_recomputing_a_window_is_done_once_and_restores_it_for_all() -> None:
    manager = make((None, 6))
    remember(manager, list(range(17)))
    while manager._allocators[1].num_cached:
        manager._tree.evict(1)
    first, second = manager.open(list(range(17))), manager.open(list(range(20)))
    assert first.num_cached == 0
    assert manager.reserve(first, 16)
    assert manager.blocked(second)
    manager.commit(first, 16)
    assert manager.match(second) == 16
    assert second.tables[0] == first.tables[0]
    assert manager.stats()[0].used == 4, "the copies that were computed again are free"
    manager.check()


def test_evicting_a_node_that_is_being_recomputed_withdraws_the_promises_below_it() -> None:
    manager = make((None, 6), (9, 20))
    remember(manager, list(range(8)))
    while manager._allocators[1].num_cached:
        manager._tree.evict(1)
    again = manager.open(list(range(17)))  # promises the two nodes that are there and two new ones
    assert again.num_cached == 0
    assert manager.reserve(again, 4)
    assert len(again.path.promised) == 4
    other = manager.open(list(range(100, 128)))
    assert manager.reserve(other, 16)
    assert manager.reserve(other, 16)
    manager.close(other)
    last = manager.open(list(range(200, 228)))
    assert manager.reserve(last, 16)
    manager.commit(last, 16)
    assert manager.reserve(last, 12)  # takes the blocks of those nodes
    assert len(again.path.promised) == 0
    manager.check()
    manager.close(last)
    compute(manager, again)
    assert len(again.path.nodes) == 4


@pytest.mark.parametrize("windows", [(6,), (6, 3)])
def test_a_model_with_windows_only_works_and_matches(windows: tuple[int, ...]) -> None:
    manager = make(windows, 9)
    assert manager.can_ever_fit(100_000)
    remember(manager, list(range(100)))
    assert hit(manager, list(range(120))) == 100
    remember(manager, list(range(200, 300)))
    remember(manager, list(range(300, 400)))
    assert hit(manager, list(range(120))) == 0
    manager.check()


def test_nodes_without_any_block_left_are_forgotten() -> None:
    manager = make((6,))
    remember(manager, list(range(100)))
    while manager._allocators[0].num_cached:
        manager._tree.evict(0)
    assert not manager._tree.roots


# -- what does not fit, and what is not trusted


def test_what_can_never_fit_is_known_beforehand() -> None:
    manager = make(num_blocks=5)
    assert manager.capacity_tokens == 16
    assert manager.can_ever_fit(16)
    assert not manager.can_ever_fit(17)


def test_a_window_group_that_holds_its_window_limits_nothing() -> None:
    assert make((None, 6), (30, 8)).capacity_tokens == 29 * BLOCK
    small = make((None, 60), (30, 8))
    assert small.capacity_tokens == 7 * BLOCK
    assert small.can_ever_fit(28)
    assert not small.can_ever_fit(29)
    assert make((6,), 8).capacity_tokens == 7 * BLOCK  # no limit: what the pool holds


@pytest.mark.parametrize("windows", [(None,), (None, 6), (5,)])
def test_a_sequence_as_long_as_fits_runs_to_its_end_in_a_full_cache(windows: tuple[int | None, ...]) -> None:
    manager = make(windows, 8)
    for first in range(20):
        remember(manager, [first] * 9)
    seq = manager.open(list(range(manager.capacity_tokens)))
    compute(manager, seq)
    assert seq.num_computed == manager.capacity_tokens


def test_a_discarded_sequence_leaves_nothing_and_says_what_to_clear() -> None:
    manager = make()
    remember(manager, list(range(4)))
    seq = manager.open(list(range(14)))
    compute(manager, seq)
    own = seq.tables[0][1:]
    freed = manager.close(seq, discard=True)
    assert sorted(freed[0]) == sorted(own)
    assert hit(manager, list(range(14))) == 4  # which it had only matched
    assert manager.stats() == (GroupUsage(used=0, cached=1, free=18),)


def test_what_was_computed_on_top_of_a_discarded_block_goes_too() -> None:
    manager = make()
    failed = manager.open(list(range(9)))
    compute(manager, failed, upto=8)
    other = manager.open([*range(8), 50, 51, 52, 53, 54])
    compute(manager, other)
    manager.close(other)
    assert hit(manager, [*range(8), 50, 51, 52, 53, 54]) == 12
    manager.close(failed, discard=True)
    assert manager.stats() == (GroupUsage(used=0, cached=0, free=19),)


def test_a_discarded_block_that_another_owns_is_found_no_more_and_goes_with_that_one() -> None:
    manager = make()
    failed = manager.open(list(range(9)))
    compute(manager, failed, upto=8)
    other = manager.open([*range(8), 50])
    assert manager.close(failed, discard=True) == ([],)
    manager.check()
    assert hit(manager, list(range(9))) == 0
    compute(manager, other)
    healthy = manager.open(list(range(9)))
    compute(manager, healthy)  # does not meet the old nodes
    assert set(healthy.tables[0]).isdisjoint(other.tables[0])
    suspect = other.tables[0][:2]
    assert sorted(manager.close(other)[0]) == sorted(suspect)
    manager.close(healthy)
    assert hit(manager, list(range(9))) == 8


def test_promises_that_run_through_a_discarded_node_are_made_anew() -> None:
    """A windowed group's copy is being restored by one while the author of the full group's copy fails."""
    manager = make((None, 6))
    author = manager.open(list(range(17)))
    compute(manager, author, upto=16)
    while manager._allocators[1].num_cached:
        manager._tree.evict(1)
    restorer = manager.open(list(range(13)))
    assert restorer.num_cached == 0
    holder = manager.open(list(range(20)))
    assert holder.num_cached == 16
    assert manager.reserve(restorer, 12)
    assert len(restorer.path.promised) == 3
    manager.close(author, discard=True)
    manager.check()
    assert len(restorer.path.promised) == 0
    manager.commit(restorer, 12)
    manager.check()
    manager.close(restorer)
    manager.close(holder)
    assert hit(manager, list(range(20))) == 12


def test_a_block_donated_by_a_discarded_sequence_is_taken_out_again() -> None:
    manager = make((None, 6))
    remember(manager, list(range(9)))
    while manager._allocators[1].num_cached:
        manager._tree.evict(1)
    failed = manager.open(list(range(9)))
    compute(manager, failed)
    assert hit(manager, list(range(9))) == 8
    manager.close(failed, discard=True)
    assert hit(manager, list(range(9))) == 0
    assert manager.stats()[0].cached == 2, "the full group's copies were computed by a healthy one"
    manager.check()


# -- settings


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(AssertionError, match="one group"):
        CacheManager([KVGroup(None, (0,)), KVGroup(None, (1,))], [4, 4], block_size=4, max_chunk=4)
    with pytest.raises(AssertionError, match="sees itself"):
        CacheManager([KVGroup(0, (0,))], [4], block_size=4, max_chunk=4)
    with pytest.raises(AssertionError, match="2 groups, 1 pool sizes"):
        CacheManager(group_layers([None, 4]), [4], block_size=4, max_chunk=4)
    with pytest.raises(AssertionError, match="got 17"):
        make().reserve(make().open([1]), 17)
