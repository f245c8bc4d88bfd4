"""Hands out the blocks of one KV group and counts who owns them. Knows neither tokens nor tensors.

A block is in exactly one of three states:

    used     owned by at least one live sequence
    cached   owned by nobody, but kept because the prefix tree can still find its content
    free     neither

Every operation is O(1).
"""

NULL_BLOCK = 0  # stays zero, stands for "no block here", is never handed out and never counted


class BlockAllocator:
    """The blocks 1 .. num_blocks - 1 of one group.

    Freed blocks are handed out again, latest first, before any block that was never used: memory that nobody has
    touched yet stays uncommitted by the operating system.
    """

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks >= 1, f"the null block is always there, got num_blocks={num_blocks}"
        self.num_blocks = num_blocks
        self.num_cached = 0
        self._owners = [0] * num_blocks
        self._kept = bytearray(num_blocks)
        self._freed: list[int] = []
        self._fresh = NULL_BLOCK + 1  # the lowest block that was never handed out

    @property
    def num_free(self) -> int:
        """Blocks that take() can hand out."""
        return len(self._freed) + self.num_blocks - self._fresh

    @property
    def num_used(self) -> int:
        """Blocks that a live sequence owns."""
        return self.num_blocks - 1 - self.num_free - self.num_cached

    def owners(self, block: int) -> int:
        """How many live sequences own the block."""
        return self._owners[block]

    def is_kept(self, block: int) -> bool:
        """Whether the prefix tree wants the block's content to stay."""
        return bool(self._kept[block])

    def kept_flags(self) -> bytearray:
        """A copy of is_kept for all blocks, the null block first."""
        return bytearray(self._kept)

    def free_blocks(self) -> list[int]:
        """All free blocks, for checks: O(num_blocks)."""
        return [*self._freed, *range(self._fresh, self.num_blocks)]

    def take(self) -> int:
        """A free block, owned once. The caller has seen that num_free is not 0."""
        if self._freed:
            block = self._freed.pop()
        else:
            assert self._fresh < self.num_blocks, f"all {self.num_blocks - 1} blocks are in use"
            block = self._fresh
            self._fresh += 1
        self._owners[block] = 1
        return block

    def share(self, block: int) -> bool:
        """One more owner. True if the block was cached: nobody owned it until now."""
        assert self._owners[block] or self._kept[block], f"block {block} is free"
        was_cached = not self._owners[block]
        self.num_cached -= was_cached
        self._owners[block] += 1
        return was_cached

    def release(self, block: int) -> bool:
        """One owner less. True if the block is cached from now on: nobody owns it, but it is kept."""
        assert self._owners[block] > 0, f"block {block} has no owner to release it"
        self._owners[block] -= 1
        if self._owners[block]:
            return False
        if self._kept[block]:
            self.num_cached += 1
            return True
        self._freed.append(block)
        return False

    def keep(self, block: int) -> None:
        """The prefix tree can find this block from now on: it stays when its last owner goes."""
        assert self._owners[block], f"block {block} has no owner"
        assert not self._kept[block], f"block {block} is kept already"
        self._kept[block] = 1

    def drop(self, block: int) -> None:
        """The prefix tree can no longer find this block: it is free now, or when its last owner goes."""
        assert self._kept[block], f"block {block} is not kept"
        self._kept[block] = 0
        if not self._owners[block]:
            self.num_cached -= 1
            self._freed.append(block)
