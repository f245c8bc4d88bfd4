"""Paged attention against softmax written out, one query at a time, over plain lists of keys and values."""

import random

import pytest
import torch
from torch import Tensor

from model.attention.reference import TorchAttention
from model.batch import Chunk
from model.config import ModelConfig, RopeConfig
from model.packing import Packer
from tests.helpers.paged import PlainKV

SIZE = 4
CPU = torch.device("cpu")


def config(*, heads: int, kv_heads: int, head_dim: int, window: int | None) -> ModelConfig:
    return ModelConfig(
        family="llama",
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_layers=1,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        context_length=512,
        norm_eps=1e-6,
        rope=RopeConfig(10000.0),
        tie_embeddings=True,
        windows=(window,),
    )


class Written:
    """Sequences whose keys and values are known at every position, and a cache that holds what came before."""

    def __init__(self, shape: ModelConfig, *, kv_dtype: torch.dtype = torch.float64, num_blocks: int = 400) -> None:
        self.shape = shape
        self.kv = PlainKV(shape, num_blocks=num_blocks, block_size=SIZE, dtype=kv_dtype)
        self.window = shape.window(0)
        self.scale = 0.37
        self._next_block = 1
        self._chunks: list[Chunk] = []
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, start: int, num_tokens: int) -> None:
        """A chunk after `start` cached positions. What has left the window reads as the null block."""
        heads, kv_heads, head_dim = self.shape.num_heads, self.shape.num_kv_heads, self.shape.head_dim
        length = start + num_tokens
        keys, values = (torch.randn(length, kv_heads, head_dim, dtype=torch.float64) for _ in range(2))
        num_blocks = -(-length // SIZE)
        table = list(range(self._next_block, self._next_block + num_blocks))
        random.Random(start).shuffle(table)
        self._next_block += num_blocks
        for position in range(start):
            slot = torch.tensor([table[position // SIZE] * SIZE + position % SIZE])
            self.kv.write(0, slot, keys[position : position + 1], values[position : position + 1])
        left = 0 if self.window is None else max(0, start - self.window + 1) // SIZE
        self._chunks.append(Chunk([0] * num_tokens, start, ([0] * left + table[left:],), 1))
        self._rows.append((torch.randn(num_tokens, heads, head_dim, dtype=torch.float64), keys, values))

    def attend(self) -> list[Tensor]:
        """What the backend makes of all chunks in one step, chunk by chunk (n, H, D)."""
        batch = Packer(((0, self.window),), SIZE, torch.float64, CPU).pack(self._chunks)
        order = self._packed_order()
        queries = torch.cat([self._rows[i][0] for i in order])
        keys, values = (torch.cat([self._rows[i][part][self._chunks[i].start :] for i in order]) for part in (1, 2))
        out = TorchAttention().attend(0, queries, keys, values, batch, self.kv, scale=self.scale, window=self.window)
        pieces = out.split([len(self._chunks[i].tokens) for i in order])
        return [pieces[order.index(i)] for i in range(len(self._chunks))]

    def expected(self, number: int) -> Tensor:
        """Softmax attention of one chunk, written out."""
        queries, keys, values = self._rows[number]
        heads_per_kv = self.shape.num_heads // self.shape.num_kv_heads
        out = torch.empty_like(queries)
        for row in range(len(queries)):
            position = self._chunks[number].start + row
            low = 0 if self.window is None else max(0, position - self.window + 1)
            for head in range(self.shape.num_heads):
                seen = keys[low : position + 1, head // heads_per_kv]
                weights = (seen @ queries[row, head] * self.scale).softmax(0)
                out[row, head] = weights @ values[low : position + 1, head // heads_per_kv]
        return out

    def _packed_order(self) -> list[int]:
        numbers = range(len(self._chunks))
        single = [i for i in numbers if len(self._chunks[i].tokens) == 1]
        longer = [i for i in numbers if len(self._chunks[i].tokens) > 1]
        return sorted(single, key=lambda i: self._chunks[i].start) + longer


SHAPES = [(4, 4, 8), (6, 2, 10), (4, 1, 6), (1, 1, 2)]
MIX = [(0, 1), (9, 1), (0, 7), (13, 1), (4, 4), (3, 9), (150, 1), (20, 1), (40, 2)]


@pytest.mark.parametrize("window", [None, 1, 3, 4, 6, 32])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
def test_a_mixed_step_equals_softmax_written_out(heads: int, kv_heads: int, head_dim: int, window: int | None) -> None:
    torch.manual_seed(heads)
    written = Written(config(heads=heads, kv_heads=kv_heads, head_dim=head_dim, window=window))
    for start, num_tokens in MIX:
        written.add(start, num_tokens)
    for number, actual in enumerate(written.attend()):
        torch.testing.assert_close(actual, written.expected(number), rtol=1e-10, atol=1e-12)


def test_the_cache_may_be_of_another_type_than_the_queries() -> None:
    torch.manual_seed(0)
    written = Written(config(heads=4, kv_heads=2, head_dim=8, window=None), kv_dtype=torch.bfloat16)
    for start, num_tokens in MIX:
        written.add(start, num_tokens)
    for number, actual in enumerate(written.attend()):
        assert actual.dtype == torch.float64
        torch.testing.assert_close(actual, written.expected(number), rtol=0, atol=0.05)


def test_what_a_reused_block_held_before_is_never_seen() -> None:
    """PlainKV's fresh blocks hold large numbers: a masked position that leaked would drown everything else."""
    torch.manual_seed(0)
    written = Written(config(heads=2, kv_heads=1, head_dim=4, window=None))
    written.add(1, 1)
    assert written.kv.keys(0)[1].max() == 1e4
    assert written.attend()[0].abs().max() < 10


@pytest.mark.parametrize("chunks", [[(30, 1)] * 8, [(32, 16)]])
def test_the_work_does_not_grow_with_the_pool(chunks: list[tuple[int, int]]) -> None:
    """Counted in the bytes that a step allocates, in a pool of 64 blocks and in one of 4096."""

    def allocated(num_blocks: int) -> int:
        torch.manual_seed(0)
        shape = config(heads=4, kv_heads=2, head_dim=8, window=None)
        written = Written(shape, num_blocks=num_blocks)
        for start, num_tokens in chunks:
            written.add(start, num_tokens)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
        ) as profile:
            written.attend()
        return sum(max(0, event.self_cpu_memory_usage) for event in profile.events())

    small = allocated(128)
    assert small > 0
    assert allocated(4096) == small
