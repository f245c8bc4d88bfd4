"""How much memory a model needs and how many tokens fit, from the checkpoint's headers, by the engine's own rules.

Reads no weights and allocates no cache. Knows what `compose` would choose on this machine; knows no table and no JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from cache.groups import KVGroup, most_blocks
from cache.manager import CacheManager
from cache.pool import bytes_per_token
from cache.sizing import MIB, free_memory
from model.checkpoint.source import Checkpoint, open_checkpoint
from model.checkpoint.stored import num_bytes
from model.config import ModelConfig
from model.families.registry import to_model_config, weight_shapes
from server.config import EngineConfig
from server.engine.compose import (
    CACHE_SHARE,
    Kinds,
    choose_kinds,
    choose_max_model_len,
    choose_rounding,
    divide_cache,
)
from server.engine.errors import StartupFailed

ENGINE_BYTES = 250 * MIB  # of the engine's process beside weights and cache: torch and Python (docs/lab-notes.md)
LADDER_BYTES = tuple(MIB * 2**power for power in range(8, 15))  # 256 MiB to 16 GiB


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Layers that see window positions (None: all), what a token costs in them, and their share of the cache."""

    window: int | None
    num_layers: int
    bytes_per_token: int
    num_blocks: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Rung:
    """So much cache holds so many tokens, or so many sequences of the whole context."""

    cache_bytes: int
    tokens: int
    full_sequences: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a server with these settings would do. memory_bytes: what is free before it starts.

    cache_tokens and cache_bytes are what a started server reports of itself. sequences: how many of each length fit.
    """

    backend: str
    dtype: str
    kv_cache_dtype: str
    max_model_len: int
    stored_bytes: int
    weights_bytes: int
    engine_bytes: int
    memory_bytes: int
    cache_bytes: int
    cache_tokens: int
    groups: tuple[GroupPlan, ...]
    sequences: tuple[tuple[int, int], ...]
    ladder: tuple[Rung, ...]


def make_plan(config: EngineConfig, *, memory_bytes: int | None = None) -> Plan:
    """memory_bytes: free for the engine, as if on another machine; None: what is free on this one.

    Raises CheckpointError or StartupFailed, one line for the user.
    """
    checkpoint = open_checkpoint(Path(config.model_path))
    model, kinds = to_model_config(checkpoint.config), choose_kinds(config)
    max_model_len = choose_max_model_len(config.max_model_len, model.context_length)
    stored, weights = weight_bytes(config, checkpoint, model, kinds)
    memory = free_memory() if memory_bytes is None else memory_bytes
    free = max(0, memory - weights - ENGINE_BYTES)
    budget = int(CACHE_SHARE * free) if config.kv_cache_bytes is None else config.kv_cache_bytes
    if budget > free:
        raise StartupFailed(
            f"--kv-cache-memory is {budget / MIB:.0f} MiB; allowed: at most the {free / MIB:.0f} MiB that would be free"
        )
    sizing = _Sizing(config, model, kinds.kv_dtype, max_model_len)
    groups, num_blocks = sizing.divide(budget)
    planned = tuple(map(sizing.group, groups, num_blocks))
    lengths = sorted({min(length, max_model_len) for length in (1024, 4096, max_model_len)})
    return Plan(
        backend=kinds.backend.name,
        dtype=_name(kinds.dtype),
        kv_cache_dtype=_name(kinds.kv_dtype),
        max_model_len=max_model_len,
        stored_bytes=stored,
        weights_bytes=weights,
        engine_bytes=ENGINE_BYTES,
        memory_bytes=memory,
        cache_bytes=sum(group.num_bytes for group in planned),
        cache_tokens=sizing.tokens(groups, num_blocks),
        groups=planned,
        sequences=tuple((length, sizing.sequences(groups, num_blocks, length)) for length in lengths),
        ladder=tuple(sizing.rungs()),
    )


def weight_bytes(config: EngineConfig, checkpoint: Checkpoint, model: ModelConfig, kinds: Kinds) -> tuple[int, int]:
    """Bytes of the weights in the file, and in memory: native kernels keep them as stored or rounded, torch unpacks."""
    names = [name for name in weight_shapes(model) if name in set(checkpoint.tensor_names)]
    stored = {name: checkpoint.stored_bytes(name) for name in names}
    if kinds.backend.team is None:
        sizes = [torch.Size(checkpoint.shape(name)).numel() * kinds.dtype.itemsize for name in names]
        return sum(stored.values()), sum(sizes)
    rounding = choose_rounding(config, checkpoint, kinds.threads)
    rounded = (
        {name: num_bytes(kind, checkpoint.shape(name)) for name, kind in rounding.kinds.items()} if rounding else {}
    )
    return sum(stored.values()), sum({**stored, **rounded}.values())


@dataclass(frozen=True, slots=True)
class _Sizing:
    """Blocks and tokens for one model with one kind of cache."""

    config: EngineConfig
    model: ModelConfig
    kv_dtype: torch.dtype
    max_model_len: int

    def divide(self, budget_bytes: int) -> tuple[tuple[KVGroup, ...], tuple[int, ...]]:
        return divide_cache(
            self.config, self.model, self.kv_dtype, budget_bytes=budget_bytes, max_model_len=self.max_model_len
        )

    def group(self, group: KVGroup, num_blocks: int) -> GroupPlan:
        """num_blocks without the null block, which holds nothing, are what the cache reports."""
        per_layer = bytes_per_token(self.model.num_kv_heads, self.model.head_dim, self.kv_dtype)
        per_token, usable = per_layer * len(group.layers), num_blocks - 1
        total = usable * per_token * self.config.block_size
        return GroupPlan(group.window, len(group.layers), per_token, usable, total)

    def tokens(self, groups: Sequence[KVGroup], num_blocks: Sequence[int]) -> int:
        """Of the longest sequence that fits, as the manager counts."""
        config = self.config
        manager = CacheManager(
            groups,
            num_blocks,
            block_size=config.block_size,
            max_chunk=config.max_num_batched_tokens,
            prefix_cache=False,
        )
        return manager.capacity_tokens

    def sequences(self, groups: Sequence[KVGroup], num_blocks: Sequence[int], length: int) -> int:
        """How many of that length fit at once, at their worst moment."""
        size, chunk = self.config.block_size, self.config.max_num_batched_tokens
        return min(
            (blocks - 1) // most_blocks(group.window, length, block_size=size, max_chunk=chunk)
            for group, blocks in zip(groups, num_blocks, strict=True)
        )

    def rungs(self) -> list[Rung]:
        """Growing caches, until one holds max_num_seqs sequences of the whole context; it gets no larger."""
        found: list[Rung] = []
        for size in LADDER_BYTES:
            try:
                groups, num_blocks = self.divide(size)
            except StartupFailed:
                continue
            full = self.sequences(groups, num_blocks, self.max_model_len)
            found.append(Rung(size, self.tokens(groups, num_blocks), full))
            if full >= self.config.max_num_seqs:
                break
        return found


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
