"""Attention's inputs for tests: sequences in scrambled blocks of a cache whose unused slots are poisoned.

T tokens, H query heads, Hkv KV heads, D head size.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from model.kernels.attention import AttentionPlan, HeadShape
from model.kernels.native import Team
from model.kernels.ops import CacheLayer

Piece = tuple[int, int]  # position of its first token, number of tokens


@dataclass
class PagedHeads:
    """One layer, one step. pieces: what the step computes of each sequence; earlier positions are in the cache too."""

    shape: HeadShape
    pieces: Sequence[Piece]
    block_size: int = 16
    window: int | None = None
    dtype: torch.dtype = torch.float32
    poison: float = float("nan")
    seed: int = 0
    scale: float = 0.0  # 0: what a model would have, 1 / sqrt(D)
    sequences: list[tuple[Tensor, Tensor, Tensor]] = field(init=False)  # queries, keys, values at every position
    tables: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        self.scale = self.scale or self.shape.head_dim**-0.5
        heads, kv_heads, head_dim = self.shape.num_heads, self.shape.num_kv_heads, self.shape.head_dim
        lengths = [start + n for start, n in self.pieces]
        counts = [-(-length // self.block_size) for length in lengths]
        order = random.Random(self.seed).sample(range(1, sum(counts) + 1), sum(counts))
        pool = torch.full((2, sum(counts) + 1, self.block_size, kv_heads, head_dim), self.poison)
        self.sequences, self.tables = [], []
        for length, count in zip(lengths, counts, strict=True):
            keys, values = (torch.randn(length, kv_heads, head_dim, generator=generator) for _ in range(2))
            self.sequences.append((torch.randn(length, heads, head_dim, generator=generator), keys, values))
            self.tables.append([order.pop() for _ in range(count)])
            slots = self.slots(len(self.tables) - 1)
            pool[0].flatten(0, 1)[slots], pool[1].flatten(0, 1)[slots] = keys, values
        self.cache = CacheLayer(pool[0].to(self.dtype).contiguous(), pool[1].to(self.dtype).contiguous())

    def slots(self, number: int) -> Tensor:
        """Of every position of a sequence."""
        positions = torch.arange(len(self.sequences[number][0]))
        return torch.tensor(self.tables[number])[positions // self.block_size] * self.block_size + (
            positions % self.block_size
        )

    def attend(self, team: Team, steps: Sequence[Sequence[tuple[int, int, int]]] | None = None) -> list[Tensor]:
        """Each piece's result (n, H, D). steps: (sequence, first position, tokens) per chunk; None: all at once."""
        out = [torch.full((len(q), *q.shape[1:]), torch.nan) for q, _, _ in self.sequences]
        whole = [(i, start, n) for i, (start, n) in enumerate(self.pieces)]
        for step in [whole] if steps is None else steps:
            result = self._step(team, step)
            for (number, start, n), part in zip(step, result, strict=True):
                out[number][start : start + n] = part
        return [seen[start : start + n] for seen, (start, n) in zip(out, self.pieces, strict=True)]

    def _step(self, team: Team, step: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        rows, blocks, row = [], [], 0
        for number, start, n in step:
            left = 0 if self.window is None else max(0, start - self.window + 1) // self.block_size
            rows.append((row, start, n, len(blocks) - left))  # blocks that the window has left are not in the table
            blocks += self.tables[number][left : (start + n - 1) // self.block_size + 1]
            row += n
        plan = AttentionPlan.of(
            team,
            np.array(rows, dtype=np.int64),
            np.array(blocks, dtype=np.int32),
            shape=self.shape,
            window=self.window,
        )
        queries = torch.cat([self.sequences[number][0][start : start + n] for number, start, n in step])
        out = torch.full_like(queries, torch.nan)
        plan.attend(queries, self.cache, out, scale=self.scale)
        assert not plan.counters.any()
        return list(out.split([n for _, _, n in step]))

    def expected(self) -> list[Tensor]:
        """Softmax attention written out in float64, over what the cache's type leaves of keys and values."""
        group = self.shape.num_heads // self.shape.num_kv_heads
        results = []
        for (queries, keys, values), (start, n) in zip(self.sequences, self.pieces, strict=True):
            q = queries[start:].double().transpose(0, 1)
            k, v = (part.to(self.dtype).double().repeat_interleave(group, 1).transpose(0, 1) for part in (keys, values))
            distance = torch.arange(start, start + n)[:, None] - torch.arange(start + n)[None]
            hidden = (distance < 0) | (distance >= (self.window or start + n))
            weights = (q @ k.transpose(1, 2) * self.scale).masked_fill(hidden, -torch.inf).softmax(-1)
            results.append((weights @ v).transpose(0, 1))
        return results


def same_bits(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Zeros of different sign differ, and not-a-numbers of equal bits don't."""
    return len(a) == len(b) and all(
        torch.equal(x.view(torch.int32), y.view(torch.int32)) for x, y in zip(a, b, strict=True)
    )
