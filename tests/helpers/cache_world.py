"""A device that is only a dict, and sequences that compute on it through a `CacheManager`.

Every position that is written leaves a fingerprint of everything it depends on: the root and all tokens up to it.
Before each commit, everything that attention would read is compared with what should be there. So a block that was
handed out twice, evicted too early, matched wrongly or given back too early shows as a wrong fingerprint.
"""

import random
from dataclasses import dataclass

from cache.groups import group_layers
from cache.manager import CacheManager, CacheSequence
from cache.node import Node

Root = tuple[str, str]


@dataclass(eq=False)
class Live:
    """One live sequence and what the test knows about it. spoiled: it wrote or read something not to be trusted."""

    seq: CacheSequence
    root: Root
    tokens: list[int]
    goal: int  # closes when it has so many tokens
    spoiled: bool = False

    @property
    def rest(self) -> int:
        return len(self.tokens) - self.seq.num_computed

    def fingerprints(self) -> list[int]:
        """Per position, a hash of the root and of all tokens up to it."""
        chain, last = [], hash(self.root)
        for token in self.tokens:
            last = hash((last, token))
            chain.append(last)
        return chain


class World:
    """A manager, the device's memory and the live sequences, oldest first."""

    def __init__(
        self,
        windows: list[int | None],
        num_blocks: list[int],
        *,
        block_size: int,
        max_chunk: int,
        prefix_cache: bool = True,
    ) -> None:
        groups = group_layers(windows)
        assert len(groups) == len(num_blocks)
        self.windows = [group.window for group in groups]
        self.block_size = block_size
        self.max_chunk = max_chunk
        self.manager = CacheManager(
            groups, num_blocks, block_size=block_size, max_chunk=max_chunk, prefix_cache=prefix_cache
        )
        self.memory: dict[tuple[int, int, int], int | str] = {}
        self.live: list[Live] = []

    # -- what a scheduler does

    def open(self, tokens: list[int], root: Root = ("", ""), *, goal: int = 0) -> Live:
        expected = 0
        if self.manager.prefix_cache:
            expected = self.longest_hit(tokens, root)
        live = Live(self.manager.open(tokens, namespace=root[0], salt=root[1]), root, tokens, goal)
        assert live.seq.num_cached == live.seq.num_computed == expected, "not the deepest usable prefix"
        self.live.append(live)
        self.manager.check()
        return live

    def match(self, live: Live) -> int:
        before = (live.seq.num_computed, live.seq.num_cached)
        gained = self.manager.match(live.seq)
        assert (live.seq.num_computed, live.seq.num_cached) == (before[0] + gained, before[1] + gained)
        self.manager.check()
        return gained

    def reserve(self, live: Live, num_tokens: int) -> bool:
        possible = self.manager.can_reserve(live.seq, num_tokens)
        before = self.manager.stats()
        done = self.manager.reserve(live.seq, num_tokens)
        assert done == possible
        assert done or self.manager.stats() == before, "a reserve that fails must change nothing"
        self.manager.check()
        return done

    def run(self, chunks: list[tuple[Live, int]], *, spoil: Live | None = None) -> None:
        """One step: all chunks write, then all read what attention would; then each is committed."""
        for live, num_tokens in chunks:
            if live is spoil:
                live.spoiled = True
            self._write(live, num_tokens)
        for live, num_tokens in chunks:
            self._read(live, num_tokens)
        for live, num_tokens in chunks:
            self.manager.commit(live.seq, num_tokens)
            self.manager.check()
            self._look_back(live)

    def close(self, live: Live, *, discard: bool = False) -> None:
        self.live.remove(live)
        for group, blocks in enumerate(self.manager.close(live.seq, discard=discard)):
            for block in blocks:
                self.clear(group, block)
        self.manager.check()

    def clear(self, group: int, block: int) -> None:
        assert block in self.manager._allocators[group].free_blocks(), "only free blocks may be cleared"
        for offset in range(self.block_size):
            self.memory.pop((group, block, offset), None)

    # -- what should be so, found the slow way

    def nodes(self) -> dict[tuple[Root, tuple[int, ...]], Node]:
        """All computed nodes that can be found, by root and whole prefix."""
        found = {}
        pending: list[tuple[Root, tuple[int, ...], Node]] = [
            (name, (), root) for name, root in self.manager._tree.roots.items()
        ]
        while pending:
            root, prefix, node = pending.pop()
            for key, child in node.children.items():
                pending.append((root, prefix + key, child))
                if child.computed:
                    found[root, prefix + key] = child
        return found

    def longest_hit(self, tokens: list[int], root: Root) -> int:
        """Tokens of the deepest prefix, shorter than all tokens, from which a new sequence could go on."""
        nodes, size = self.nodes(), self.block_size
        best = 0
        for depth in range(1, (len(tokens) - 1) // size + 1):
            path = [nodes.get((root, tuple(tokens[: i * size]))) for i in range(1, depth + 1)]
            if None in path:
                break
            needed = [
                node.blocks[group]
                for group, window in enumerate(self.windows)
                for index, node in enumerate(path)
                if node is not None and (window is None or (index + 1) * size - 1 > depth * size - window)
            ]
            if all(needed):
                best = depth * size
        return best

    def spoiled_blocks_in_tree(self) -> list[tuple[int, int]]:
        """(group, block) that the tree can find although something not to be trusted was written there."""
        return [
            (group, block)
            for node in self.nodes().values()
            for group, block in enumerate(node.blocks)
            if block and "spoiled" in [self.memory[group, block, offset] for offset in range(self.block_size)]
        ]

    # -- inside

    def _slot(self, live: Live, group: int, position: int) -> tuple[int, int, int]:
        block = live.seq.tables[group][position // self.block_size]
        return (group, block, position % self.block_size)

    def _write(self, live: Live, num_tokens: int) -> None:
        marks = live.fingerprints()
        start = live.seq.num_computed
        for group in range(len(self.windows)):
            for position in range(start, start + num_tokens):
                slot = self._slot(live, group, position)
                assert slot[1] != 0, "the null block is never written"
                self.memory[slot] = "spoiled" if live.spoiled else marks[position]

    def _read(self, live: Live, num_tokens: int) -> None:
        marks = live.fingerprints()
        start = live.seq.num_computed
        for group, window in enumerate(self.windows):
            first = 0 if window is None else max(0, start - window + 1)
            for position in range(first, start + num_tokens):
                value = self.memory[self._slot(live, group, position)]
                if value == "spoiled":
                    live.spoiled = True
                else:
                    assert value == marks[position], f"group {group} position {position} holds something else"

    def _look_back(self, live: Live) -> None:
        """After a commit, what the next token will see is still there, and nothing else is held."""
        marks = live.fingerprints()
        for group, window in enumerate(self.windows):
            first = 0 if window is None else max(0, live.seq.num_computed - window + 1)
            for position in range(first, live.seq.num_computed):
                assert self.memory[self._slot(live, group, position)] in (marks[position], "spoiled")
            table = live.seq.tables[group]
            assert table[: first // self.block_size] == [0] * (first // self.block_size)


def crafty_prompt(rng: random.Random, block_size: int, longest: int, *, num_bases: int = 3) -> list[int]:
    """Few tokens, few beginnings, often an exact multiple of the block size: collisions of all kinds."""
    base = random.Random(rng.randrange(num_bases)).choices([7, 8], k=longest)
    length = rng.choice([rng.randrange(1, longest + 1), block_size * rng.randrange(1, longest // block_size + 1)])
    tokens = base[:length]
    if rng.random() < 0.4:
        tokens[rng.randrange(length)] = rng.choice([7, 8, 9])
    return tokens
