"""The manager matches, waits, keeps and evicts exactly what a plain model of one full group says."""

import random

import pytest

from cache.groups import KVGroup
from cache.manager import CacheManager, CacheSequence
from cache.node import Node
from tests.helpers.cache_world import crafty_prompt
from tests.helpers.naive_cache import NaiveCache, NaiveSequence


def cached_prefixes(manager: CacheManager) -> set[tuple[int, ...]]:
    found = set()
    pending: list[tuple[tuple[int, ...], Node]] = [((), root) for root in manager._tree.roots.values()]
    while pending:
        prefix, node = pending.pop()
        pending += [(prefix + key, child) for key, child in node.children.items() if child.computed]
        found.add(prefix)
    return found - {()}


@pytest.mark.parametrize("num_blocks", [7, 11, 25])
@pytest.mark.parametrize("block_size", [1, 3, 4])
def test_the_manager_does_what_the_plain_model_does(num_blocks: int, block_size: int) -> None:
    num_waits = sum(compare(num_blocks, block_size, random.Random(f"reference {seed}")) for seed in range(5))
    assert num_waits > 10


def compare(num_blocks: int, block_size: int, rng: random.Random) -> int:
    """Drive both with the same random calls. Returns how often a sequence had to wait."""
    max_chunk = 3 * block_size
    manager = CacheManager([KVGroup(None, (0,))], [num_blocks], block_size=block_size, max_chunk=max_chunk)
    naive = NaiveCache(num_blocks, block_size)
    live: list[tuple[CacheSequence, NaiveSequence]] = []
    num_waits = 0
    for _ in range(150):
        if len(live) < 4 and rng.random() < 0.5:
            tokens = crafty_prompt(rng, block_size, block_size * min(8, num_blocks - 2), num_bases=30)
            if live and rng.random() < 0.5:
                tokens = list(live[-1][0].tokens)
            live.append((manager.open(tokens), naive.open(tokens)))
        for seq, plain in rng.sample(live, len(live)):
            assert manager.match(seq) == naive.match(plain)
            waits = manager.blocked(seq)
            assert waits == naive.blocked(plain)
            num_waits += waits
            if waits and rng.random() < 0.8:
                continue
            num_tokens = rng.randint(1, min(max_chunk, len(seq.tokens) - seq.num_computed))
            done = manager.reserve(seq, num_tokens)
            assert done == naive.reserve(plain, num_tokens)
            if done and rng.random() < 0.8:
                manager.commit(seq, num_tokens)
                naive.commit(plain, num_tokens)
                if seq.num_computed == len(seq.tokens):
                    seq.tokens.append(rng.choice([7, 8]))
            assert cached_prefixes(manager) == set(naive.last_use)
            assert manager.stats()[0].free == naive.num_free()
        if live and rng.random() < 0.4:
            seq, plain = live.pop(rng.randrange(len(live)))
            manager.close(seq)
            naive.close(plain)
        manager.check()
        assert [seq.num_computed for seq, _ in live] == [plain.num_computed for _, plain in live]
    return num_waits
