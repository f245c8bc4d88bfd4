"""Blocks are used, cached or free, and nothing else."""

import pytest

from cache.blocks import NULL_BLOCK, BlockAllocator


def counts(allocator: BlockAllocator) -> tuple[int, int, int]:
    return allocator.num_used, allocator.num_cached, allocator.num_free


def test_every_block_but_the_null_block_is_handed_out_once() -> None:
    allocator = BlockAllocator(6)
    assert sorted(allocator.take() for _ in range(5)) == [1, 2, 3, 4, 5]
    assert counts(allocator) == (5, 0, 0)
    with pytest.raises(AssertionError, match="5 blocks are in use"):
        allocator.take()


def test_a_pool_of_the_null_block_alone_has_nothing_to_give() -> None:
    allocator = BlockAllocator(1)
    assert counts(allocator) == (0, 0, 0)
    assert NULL_BLOCK not in allocator.free_blocks()


def test_freed_blocks_come_back_latest_first_before_untouched_ones() -> None:
    allocator = BlockAllocator(100)
    for _ in range(4):
        allocator.take()
    allocator.release(4)
    allocator.release(2)
    assert [allocator.take() for _ in range(3)] == [2, 4, 5]


def test_a_shared_block_is_used_until_its_last_owner_goes() -> None:
    allocator = BlockAllocator(3)
    block = allocator.take()
    assert allocator.share(block) is False
    assert allocator.owners(block) == 2
    assert allocator.release(block) is False
    assert counts(allocator) == (1, 0, 1)
    assert allocator.release(block) is False  # not kept, so it is free, not cached
    assert counts(allocator) == (0, 0, 2)


def test_a_kept_block_is_cached_when_ownerless_and_can_be_owned_again() -> None:
    allocator = BlockAllocator(3)
    block = allocator.take()
    allocator.keep(block)
    assert allocator.release(block) is True
    assert counts(allocator) == (0, 1, 1)
    assert allocator.share(block) is True
    assert counts(allocator) == (1, 0, 1)
    allocator.release(block)
    allocator.drop(block)
    assert counts(allocator) == (0, 0, 2)
    assert block in allocator.free_blocks()


def test_a_block_dropped_while_owned_is_free_when_its_owner_goes() -> None:
    allocator = BlockAllocator(2)
    block = allocator.take()
    allocator.keep(block)
    allocator.drop(block)
    assert counts(allocator) == (1, 0, 0)
    assert allocator.release(block) is False
    assert counts(allocator) == (0, 0, 1)


@pytest.mark.parametrize("misuse", ["release", "share", "keep", "drop"])
def test_a_free_block_belongs_to_nobody(misuse: str) -> None:
    allocator = BlockAllocator(4)
    with pytest.raises(AssertionError, match="block 2"):
        getattr(allocator, misuse)(2)
