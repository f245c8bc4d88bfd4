"""The prefix cache of one full group, as plainly as possible: prefixes are whole tuples, everything is searched.

Blocks have no identity here, only a count. Used to check what `CacheManager` matches, keeps, evicts and promises.
"""

from dataclasses import dataclass, field

Prefix = tuple[int, ...]


@dataclass(eq=False)
class NaiveSequence:
    tokens: list[int]
    num_prompt: int
    num_computed: int = 0
    num_blocks: int = 0
    promised: set[Prefix] = field(default_factory=set)


class NaiveCache:
    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.total = num_blocks - 1
        self.size = block_size
        self.last_use: dict[Prefix, int] = {}  # every computed prefix of full blocks, and when an owner last left it
        self.live: list[NaiveSequence] = []
        self.now = 0

    def prefixes(self, seq: NaiveSequence, num_tokens: int) -> list[Prefix]:
        return [tuple(seq.tokens[:end]) for end in range(self.size, num_tokens + 1, self.size)]

    def owned(self) -> set[Prefix]:
        return {prefix for seq in self.live for prefix in self.prefixes(seq, seq.num_computed)}

    def num_free(self) -> int:
        private = sum(seq.num_blocks - seq.num_computed // self.size for seq in self.live)
        return self.total - private - len(self.last_use)

    def open(self, tokens: list[int]) -> NaiveSequence:
        seq = NaiveSequence(tokens, len(tokens))
        self.live.append(seq)
        self.match(seq)
        return seq

    def match(self, seq: NaiveSequence) -> int:
        hit = 0
        for prefix in self.prefixes(seq, len(seq.tokens) - 1):
            if prefix not in self.last_use:
                break
            hit = len(prefix)
        gained = max(0, hit - seq.num_computed)
        seq.num_computed += gained
        seq.num_blocks = max(seq.num_blocks, seq.num_computed // self.size) if gained else seq.num_blocks
        seq.promised -= set(self.prefixes(seq, seq.num_computed))
        return gained

    def blocked(self, seq: NaiveSequence) -> bool:
        end = (seq.num_computed // self.size + 1) * self.size
        coming = tuple(seq.tokens[:end])
        others = {prefix for other in self.live if other is not seq for prefix in other.promised}
        return end < seq.num_prompt and coming in others and coming not in self.last_use

    def reserve(self, seq: NaiveSequence, num_tokens: int) -> bool:
        more = max(0, -(-(seq.num_computed + num_tokens) // self.size) - seq.num_blocks)
        ownerless = set(self.last_use) - self.owned()
        if more > self.num_free() + len(ownerless):
            return False
        while self.num_free() < more:
            leaves = [p for p in ownerless if not any(q != p and q[: len(p)] == p for q in self.last_use)]
            oldest = min(leaves, key=lambda prefix: (self.last_use[prefix], -len(prefix)))
            del self.last_use[oldest]
            ownerless.remove(oldest)
        seq.num_blocks += more
        others = {prefix for other in self.live if other is not seq for prefix in other.promised}
        for prefix in self.prefixes(seq, seq.num_prompt):
            if len(prefix) > seq.num_computed // self.size * self.size:
                if prefix in others:
                    break
                seq.promised.add(prefix)
        return True

    def commit(self, seq: NaiveSequence, num_tokens: int) -> None:
        seq.num_computed += num_tokens
        for prefix in self.prefixes(seq, seq.num_computed):
            self.last_use.setdefault(prefix, -1)
            seq.promised.discard(prefix)

    def close(self, seq: NaiveSequence) -> None:
        self.live.remove(seq)
        self.now += 1
        for prefix in set(self.prefixes(seq, seq.num_computed)) - self.owned():
            self.last_use[prefix] = self.now
