"""A KV cache without an allocator, and sequences that take its blocks in a scrambled order. For tests of the model.

G KV groups (one per window), D head size.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from model.attention.backend import AttentionBackend
from model.attention.reference import TorchAttention
from model.batch import Chunk
from model.config import ModelConfig
from model.decoder import Decoder
from model.runner import ModelRunner
from model.scores import Scores

CPU = torch.device("cpu")


class Runner(Protocol):
    """Chunks in, scores out."""

    def run(self, chunks: Sequence[Chunk]) -> Scores: ...


class PlainKV:
    """Satisfies `model.attention.backend.KVStore`. Fresh blocks hold rubbish, as reused ones do; block 0 is zeros."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_blocks: int,
        block_size: int = 4,
        dtype: torch.dtype = torch.float32,
        device: torch.device = CPU,
    ) -> None:
        windows = [config.window(layer_id) for layer_id in range(config.num_layers)]
        self.windows = list(dict.fromkeys(windows))
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._groups = [self.windows.index(window) for window in windows]
        shape = (2, config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self._pool = torch.full(shape, 1e4, dtype=dtype, device=device)
        self._pool[:, :, 0] = 0.0

    def group_of(self, layer_id: int) -> int:
        return self._groups[layer_id]

    def keys(self, layer_id: int) -> Tensor:
        return self._pool[0, layer_id]

    def values(self, layer_id: int) -> Tensor:
        return self._pool[1, layer_id]

    def scales(self, layer_id: int) -> None:
        return None

    def write(self, layer_id: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        assert slots.is_meta or int(slots.min()) >= self.block_size, "a write to the null block"
        self.keys(layer_id).flatten(0, 1)[slots] = keys.to(self._pool.dtype)
        self.values(layer_id).flatten(0, 1)[slots] = values.to(self._pool.dtype)


class Paged:
    """A decoder, a cache and any number of sequences, fed in whatever pieces a test likes."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        num_blocks: int = 256,
        block_size: int = 4,
        seed: int = 0,
        device: torch.device = CPU,
        attention: AttentionBackend | None = None,
        dtype: torch.dtype | None = None,
        runner: Callable[[Decoder, PlainKV], Runner] | None = None,
    ) -> None:
        """dtype is the cache's, by default the decoder's own; runner makes another than `ModelRunner`."""
        config, dtype = decoder.config, dtype or decoder.dtype
        self.kv = PlainKV(config, num_blocks=num_blocks, block_size=block_size, dtype=dtype, device=device)
        self.runner: Runner = (
            runner(decoder, self.kv) if runner else ModelRunner(decoder, self.kv, attention or TorchAttention(), device)
        )
        order = torch.randperm(num_blocks - 1, generator=torch.Generator().manual_seed(seed)) + 1
        self._free = order.tolist()
        self._tables: dict[str, list[list[int]]] = {}
        self._lengths: dict[str, int] = {}

    def chunk(self, name: str, tokens: Sequence[int], *, num_logits: int) -> Chunk:
        """The next tokens of a sequence. Blocks that a window has left are given to nobody but read as null."""
        tables = self._tables.setdefault(name, [[] for _ in self.kv.windows])
        start = self._lengths.get(name, 0)
        end = start + len(tokens)
        for window, table in zip(self.kv.windows, tables, strict=True):
            while len(table) * self.kv.block_size < end:
                table.append(self._free.pop())
            for left in range(max(0, start - (window or end) + 1) // self.kv.block_size):
                table[left] = 0
        self._lengths[name] = end
        return Chunk(list(tokens), start, tuple(list(table) for table in tables), num_logits)

    def logits(self, tokens: Sequence[int], pieces: Sequence[int], *, name: str = "only") -> Tensor:
        """Logits (T, V) at every position of one sequence that is fed in pieces of these sizes."""
        assert sum(pieces) == len(tokens), (pieces, len(tokens))
        rows, done = [], 0
        for size in pieces:
            rows.append(self.runner.run([self.chunk(name, tokens[done : done + size], num_logits=size)]).logits)
            done += size
        return torch.cat(rows)
