"""Which sequence may write and read which block. Composes allocators and the prefix tree; no tensors, no scheduling.

A sequence's life: open (takes the longest cached prefix), then per step match, blocked?, reserve, (the step runs),
commit; in the end close. Everything is synchronous and each call leaves all invariants intact (see
`cache.invariants`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cache.blocks import NULL_BLOCK, BlockAllocator
from cache.groups import KVGroup, most_blocks
from cache.invariants import check_cache
from cache.node import Node, Path
from cache.picture import block_states
from cache.prefix import PrefixTree, first_visible


class GroupUsage(NamedTuple):
    """Blocks of one group by state. The sum is every block that can be handed out."""

    used: int
    cached: int
    free: int


class CacheSequence:
    """What one live sequence holds.

    tokens        the caller's own list: prompt and what was generated; it only ever grows at the end
    num_computed  keys and values of tokens[:num_computed] are in the cache
    num_cached    how many of them this sequence did not compute itself
    tables        per group, block of positions i * block_size .. ; 0 where a windowed group has left them behind
    """

    __slots__ = ("num_cached", "num_computed", "num_prompt", "num_returned", "path", "tables", "tokens")

    def __init__(self, tokens: list[int], path: Path, num_groups: int) -> None:
        self.tokens = tokens
        self.num_prompt = len(tokens)
        self.num_computed = 0
        self.num_cached = 0
        self.tables: tuple[list[int], ...] = tuple([] for _ in range(num_groups))
        self.num_returned = [0] * num_groups  # per group, how many leading table entries were given back
        self.path = path


class CacheManager:
    """Gives sequences their blocks, shares equal prefixes, evicts what nobody owns.

    num_blocks[g] counts group g's null block too. max_chunk is the most tokens that one reserve may ask for.
    """

    def __init__(
        self,
        groups: Sequence[KVGroup],
        num_blocks: Sequence[int],
        *,
        block_size: int,
        max_chunk: int,
        prefix_cache: bool = True,
    ) -> None:
        assert len(groups) == len(num_blocks) > 0, f"{len(groups)} groups, {len(num_blocks)} pool sizes"
        windows = tuple(group.window for group in groups)
        assert windows.count(None) <= 1, f"layers that see everything are one group, got windows {windows}"
        assert all(window is None or window >= 1 for window in windows), f"a token sees itself, got windows {windows}"
        self.block_size = block_size
        self.max_chunk = max_chunk
        self.prefix_cache = prefix_cache
        self._windows = windows
        self._windowed = tuple((g, window) for g, window in enumerate(windows) if window is not None)
        self._allocators = tuple(BlockAllocator(count) for count in num_blocks)
        self._tree = PrefixTree(windows, self._allocators, block_size)
        self._live: set[CacheSequence] = set()

    def open(self, tokens: list[int], *, namespace: str = "", salt: str = "", most: int | None = None) -> CacheSequence:
        """A new sequence that owns the longest cached prefix of tokens, at most all but the last token.

        most: at most so many tokens of it, because what comes after them is to be computed in any case.
        """
        assert tokens, "a sequence has at least one token"
        seq = CacheSequence(tokens, self._tree.enter(namespace, salt), len(self._windows))
        self._live.add(seq)
        self.match(seq, most=most)
        return seq

    def match(self, seq: CacheSequence, *, most: int | None = None) -> int:
        """Take what others have computed of this sequence meanwhile. Returns how many tokens were gained."""
        if not self.prefix_cache:
            return 0
        # stop one token short: logits need one token to compute
        longest = len(seq.tokens) - 1 if most is None else min(most, len(seq.tokens) - 1)
        nodes = self._tree.find(seq.path, seq.tokens, longest // self.block_size)
        if not nodes:
            return 0
        num_computed = nodes[-1].depth * self.block_size
        self._take(seq, nodes, num_computed)
        gained = num_computed - seq.num_computed
        seq.num_computed = num_computed
        seq.num_cached += gained
        self._give_back(seq)
        return gained

    def blocked(self, seq: CacheSequence) -> bool:
        """Whether another live sequence is about to compute the next block: wait, then match.

        Ask after match. Never true of a sequence that is past its prompt, and never true of one that others wait
        for (see `cache.prefix`).
        """
        next_end = (seq.num_computed // self.block_size + 1) * self.block_size
        if not self.prefix_cache or next_end >= seq.num_prompt:
            return False
        return self._tree.awaits(seq.path, seq.tokens)

    def can_reserve(self, seq: CacheSequence, num_tokens: int) -> bool:
        """Whether reserve would succeed now."""
        missing = self._num_missing(seq, num_tokens)
        return not missing or all(missing <= a.num_free + a.num_cached for a in self._allocators)

    def can_hold(self, needs: Iterable[tuple[CacheSequence, int]]) -> bool:
        """Whether these sequences could all get that many more tokens each, however many steps that takes.

        For admission: counts each at its worst moment and as if they shared nothing more than they do now.
        """
        missing = [0] * len(self._windows)
        for seq, num_tokens in needs:
            for group, window in enumerate(self._windows):
                held = len(seq.tables[group]) - seq.num_returned[group]
                missing[group] += max(0, self._most_blocks(window, seq.num_computed + num_tokens) - held)
        return all(wanted <= a.num_free + a.num_cached for wanted, a in zip(missing, self._allocators, strict=True))

    def reserve(self, seq: CacheSequence, num_tokens: int) -> bool:
        """Room for keys and values of the next num_tokens positions, all or nothing, by eviction where needed.

        On success the sequence also promises those full blocks of its prompt that nobody has promised yet.
        """
        assert 1 <= num_tokens <= self.max_chunk, f"a chunk has 1..{self.max_chunk} tokens, got {num_tokens}"
        missing = self._num_missing(seq, num_tokens)
        if missing:
            if not self.can_reserve(seq, num_tokens):
                return False
            for group, (table, allocator) in enumerate(zip(seq.tables, self._allocators, strict=True)):
                for _ in range(missing):
                    if not allocator.num_free:
                        self._tree.evict(group)
                    table.append(allocator.take())
        if self.prefix_cache and seq.num_computed < seq.num_prompt:
            self._tree.promise(seq.path, seq.tokens, seq.num_prompt)
        return True

    def commit(self, seq: CacheSequence, num_tokens: int) -> None:
        """The step has computed the next num_tokens positions: full blocks enter the tree, windows give back."""
        seq.num_computed += num_tokens
        assert seq.num_computed <= len(seq.tokens), f"{seq.num_computed} computed of {len(seq.tokens)} tokens"
        room = len(seq.tables[0]) * self.block_size
        assert seq.num_computed <= room, f"{seq.num_computed} tokens committed, room for {room} reserved"
        if self.prefix_cache:
            self._enter_full_blocks(seq)
        self._give_back(seq)

    def restore(self, seq: CacheSequence, num_tokens: int) -> None:
        """The reserved blocks of the next num_tokens positions were filled from elsewhere: commit without a step."""
        self.commit(seq, num_tokens)
        seq.num_cached += num_tokens

    def close(self, seq: CacheSequence, *, discard: bool = False) -> tuple[list[int], ...]:
        """Give up everything. Promises vanish; computed blocks stay cached unless discard says not to trust them.

        Returns, per group, the blocks that are free now but may hold anything (not finite numbers, say), because this
        sequence or one that it shared with was discarded: clear them in the pool before the next step.
        """
        self._live.remove(seq)
        self._tree.withdraw(seq.path)
        suspects = [(g, block) for g, table in enumerate(seq.tables) for block in table if discard and block]
        freed = [(g, block) for g, block in suspects if not self._allocators[g].is_kept(block)]
        for group, table in enumerate(seq.tables):
            self._tree.let_go_all(seq.path, group, table)
        while seq.path.nodes:
            freed += self._tree.step_back(seq.path)
        for table in seq.tables:
            table.clear()
        if discard:
            freed += self._tree.distrust(seq.path)
        self._tree.leave(seq.path)
        return tuple([block for g, block in freed if g == group] for group in range(len(self._windows)))

    def can_ever_fit(self, num_tokens: int) -> bool:
        """Whether one sequence of so many tokens could run if it were alone."""
        return all(
            self._most_blocks(window, num_tokens) < allocator.num_blocks
            for window, allocator in zip(self._windows, self._allocators, strict=True)
        )

    @property
    def capacity_tokens(self) -> int:
        """Tokens of the longest sequence that fits; if windows leave no limit, the tokens that the pool holds."""
        held = [(allocator.num_blocks - 1) * self.block_size for allocator in self._allocators]
        limits = [tokens for tokens in held if not self.can_ever_fit(tokens + 1)]
        return min(limits) if limits else max(held)

    def stats(self) -> tuple[GroupUsage, ...]:
        """Per group, blocks that are used, cached and free."""
        return tuple(GroupUsage(a.num_used, a.num_cached, a.num_free) for a in self._allocators)

    def picture(self, colours: Iterable[tuple[CacheSequence, int]]) -> tuple[bytearray, ...]:
        """Per group, the state of every block that can be handed out, as `cache.picture` numbers them."""
        coloured = list(colours)
        return tuple(
            block_states(allocator.kept_flags(), ((seq.tables[group], colour) for seq, colour in coloured))[1:]
            for group, allocator in enumerate(self._allocators)
        )

    def check(self) -> None:
        """Assert every invariant. Slow: for tests."""
        check_cache(self._tree, self._live, prefix_cache=self.prefix_cache)

    def _take(self, seq: CacheSequence, nodes: Sequence[Node], num_computed: int) -> None:
        """Own these next nodes, and in windowed groups those of their blocks that the next token sees."""
        start = len(seq.path.nodes)
        for node in nodes:
            self._tree.own(seq.path, node)
        for group, window in enumerate(self._windows):
            first = 0 if window is None else first_visible(num_computed, window, self.block_size) - start
            table = seq.tables[group]
            for block in table[start : start + len(nodes)]:
                self._tree.let_go(None, group, block)  # it was reserved to compute these nodes
            table[start : start + len(nodes)] = [
                self._tree.hold(node, group) if index >= first else NULL_BLOCK for index, node in enumerate(nodes)
            ]

    def _enter_full_blocks(self, seq: CacheSequence) -> None:
        for index in range(len(seq.path.nodes), seq.num_computed // self.block_size):
            node = self._tree.grow(seq.path, seq.tokens, [table[index] for table in seq.tables])
            for table, block in zip(seq.tables, node.blocks, strict=True):
                table[index] = block

    def _give_back(self, seq: CacheSequence) -> None:
        """Let go of the blocks that lie wholly outside the window of the next token."""
        for group, window in self._windowed:
            first = first_visible(seq.num_computed, window, self.block_size)
            if first <= seq.num_returned[group]:
                continue
            table = seq.tables[group]
            for index in range(seq.num_returned[group], first):
                if table[index] != NULL_BLOCK:
                    node = seq.path.nodes[index] if self.prefix_cache else None
                    self._tree.let_go(node, group, table[index])
                    table[index] = NULL_BLOCK
            seq.num_returned[group] = first

    def _num_missing(self, seq: CacheSequence, num_tokens: int) -> int:
        """How many more blocks, of each group, the next num_tokens positions need. All tables are equally long."""
        needed = -(-(seq.num_computed + num_tokens) // self.block_size)
        return max(0, needed - len(seq.tables[0]))

    def _most_blocks(self, window: int | None, num_tokens: int) -> int:
        """Blocks of one group that a sequence of so many tokens holds at its worst moment."""
        return most_blocks(window, num_tokens, block_size=self.block_size, max_chunk=self.max_chunk)
