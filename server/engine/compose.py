"""Composes the engine of its parts, and introduces `cache` and `model` to each other. Engine process only: torch.

Knows what "auto" means for device, type, cache size and threads.
"""

import time
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path

import torch

from cache.groups import KVGroup, group_layers
from cache.manager import CacheManager
from cache.pool import KVPool, bytes_per_token
from cache.sizing import MIB, CacheTooSmall, blocks_that_fit, free_memory
from model.checkpoint.source import Checkpoint, open_checkpoint
from model.config import ModelConfig
from model.errors import CheckpointError
from model.families.registry import to_model_config
from model.quant.rounding import Rounding, plan_rounding, quantization_of
from model.sampling import Sampler
from model.sampling_params import SamplingParams
from server.config import EngineConfig
from server.engine.backends import KV_DTYPES, Backend, choose_backend
from server.engine.constraint import Grammars
from server.engine.cores import usable_cores
from server.engine.engine import Engine
from server.engine.errors import StartupFailed
from server.engine.prefix_disk import open_disk
from server.engine.request import Request
from server.engine.scheduler import Limits
from server.engine.vocabulary import open_vocabulary
from server.engine.wire import Ready

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
CACHED = DTYPES | {"int8": torch.int8}
# Tokens. Opening a vocabulary for grammars holds the interpreter, and with it every stream: of so many for a tenth of a
# second, of four times as many for one or two. Larger ones are opened while the weights load; docs/decisions/0011.
LARGE_VOCABULARY = 65_536
CACHE_SHARE = 0.25  # of the memory that is free once the weights are loaded


@dataclass(frozen=True, slots=True)
class Kinds:
    """Where and in which types the engine computes, with every "auto" decided."""

    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    threads: int
    backend: Backend

    @property
    def numbers(self) -> tuple[str, ...]:
        """What decides the bits of keys and values, beside the model and the code."""
        its = self.backend
        kinds = (self.device.type, str(self.dtype), str(self.kv_dtype))
        return (its.name, its.kernels, its.kernels_version, *kinds)


def compose(config: EngineConfig, report: Callable[[str, float], None]) -> tuple[Engine, Ready]:
    """Load the model and allocate the cache. report hears what is being loaded and the fraction done.

    Raises CheckpointError or StartupFailed, one line for the user, where the model or a setting is at fault.
    """
    kinds = choose_kinds(config)
    # beside native kernels torch only samples, and its threads would wake up for microseconds of work
    torch.set_num_threads(kinds.threads if kinds.backend.team is None else 1)
    checkpoint = open_checkpoint(Path(config.model_path))
    model = to_model_config(checkpoint.config)
    grammars = Grammars(lambda: open_vocabulary(Path(config.model_path)))
    early = [grammars.prepare()] if model.vocab_size > LARGE_VOCABULARY else []
    max_model_len = choose_max_model_len(config.max_model_len, model.context_length)
    rounding = choose_rounding(config, checkpoint, kinds.threads)
    decoder = kinds.backend.load(
        checkpoint,
        device=kinds.device,
        dtype=kinds.dtype,
        on_progress=lambda done, total: report("weights", done / max(1, total)),
        read=rounding.stored if rounding else None,
    )
    manager, pool = make_cache(config, model, kinds, max_model_len=max_model_len)
    num_groups = len(manager.stats())
    runner = kinds.backend.runner(
        decoder, pool, kinds.device, max_tokens=config.max_num_batched_tokens, max_len=max_model_len
    )
    engine = Engine(
        manager,
        runner,
        Sampler(),
        Limits(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            block_size=config.block_size,
            target_inter_token_s=config.target_inter_token_ms / 1000,
        ),
        block_bytes=[pool.block_bytes(group) for group in range(num_groups)],
        clear=pool.clear,
        clock=time.monotonic,
        grammars=grammars,
        disk=open_disk(config, kinds.numbers, manager, pool),
    )
    wait(early)  # before the pacer learns what a token costs
    warm_up(engine, vocab_size=model.vocab_size, num_tokens=min(config.block_size, max_model_len) - 2)
    quantization = quantization_of(checkpoint) if config.quantize == "none" else config.quantize
    return engine, describe(engine, manager, kinds, max_model_len=max_model_len, quantization=quantization)


def choose_kinds(config: EngineConfig) -> Kinds:
    """Raises StartupFailed where the machine lacks what was asked for."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise StartupFailed("--device is cuda, but torch finds no usable CUDA device here")
    device = torch.device("cuda" if config.device == "cuda" or _prefers_cuda(config) else "cpu")
    # bfloat16 matrix products are far slower than float32 ones on most CPUs
    auto = torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype = DTYPES.get(config.dtype, auto)
    threads = config.threads or usable_cores()
    backend = choose_backend(config, device, threads)
    kv_auto = dtype if backend.team is None else KV_DTYPES["auto"]
    return Kinds(device, dtype, CACHED.get(config.kv_cache_dtype, kv_auto), threads, backend)


def choose_rounding(config: EngineConfig, checkpoint: Checkpoint, threads: int) -> Rounding | None:
    """What --quantize means for this checkpoint. Raises StartupFailed where its weights are quantised already."""
    if config.quantize == "none":
        return None
    try:
        return plan_rounding(checkpoint, config.quantize, threads=threads)
    except CheckpointError as error:
        raise StartupFailed(f"--quantize is {config.quantize}; allowed: none, as {error}") from error


def _prefers_cuda(config: EngineConfig) -> bool:
    return config.device == "auto" and torch.cuda.is_available()


def choose_max_model_len(wanted: int | None, context_length: int) -> int:
    """Tokens of prompt and answer together. Raises StartupFailed for more than the model was made for."""
    if wanted is not None and wanted > context_length:
        raise StartupFailed(f"--max-model-len is {wanted}; allowed: 1 to {context_length}, the model's context")
    return wanted or context_length


def make_cache(
    config: EngineConfig, model: ModelConfig, kinds: Kinds, *, max_model_len: int
) -> tuple[CacheManager, KVPool]:
    """The cache's bookkeeping and its memory. Call it when the weights are loaded: the default goes by what is free.

    Raises StartupFailed where too little memory is free or allowed.
    """
    budget = cache_budget(config.kv_cache_bytes, kinds.device)
    groups, num_blocks = divide_cache(config, model, kinds.kv_dtype, budget_bytes=budget, max_model_len=max_model_len)
    manager = CacheManager(
        groups,
        num_blocks,
        block_size=config.block_size,
        max_chunk=config.max_num_batched_tokens,
        prefix_cache=config.prefix_cache,
    )
    pool = KVPool(
        groups,
        num_blocks,
        block_size=config.block_size,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=kinds.kv_dtype,
        device=kinds.device,
    )
    return manager, pool


def divide_cache(
    config: EngineConfig, model: ModelConfig, kv_dtype: torch.dtype, *, budget_bytes: int, max_model_len: int
) -> tuple[tuple[KVGroup, ...], tuple[int, ...]]:
    """The groups of layers, and how many blocks each gets of the budget. Raises StartupFailed where it is too small."""
    groups = group_layers(model.windows or (None,) * model.num_layers)
    try:
        return groups, blocks_that_fit(
            budget_bytes,
            groups,
            block_size=config.block_size,
            bytes_per_token_per_layer=bytes_per_token(model.num_kv_heads, model.head_dim, kv_dtype),
            max_num_seqs=config.max_num_seqs,
            max_model_len=max_model_len,
            max_chunk=config.max_num_batched_tokens,
        )
    except CacheTooSmall as error:
        raise StartupFailed(f"{error}; see --kv-cache-memory") from error


def cache_budget(wanted: int | None, device: torch.device) -> int:
    """Bytes for keys and values: what was asked for, else a quarter of what is free. Raises StartupFailed."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
    if wanted is None:
        return int(free * CACHE_SHARE)
    if wanted > free:
        raise StartupFailed(
            f"--kv-cache-memory is {wanted / MIB:.0f} MiB; allowed: at most the {free / MIB:.0f} MiB that are free"
        )
    return wanted


def warm_up(engine: Engine, *, vocab_size: int, num_tokens: int) -> None:
    """Run a short prompt and a token before anyone waits for them. Raises StartupFailed where the model can't.

    Libraries set themselves up, and the pacer learns what a token costs: a long first prompt, taken in one step on a
    slow machine, would look like a hang. Shorter than a block, it leaves nothing in the prefix cache.
    """
    if num_tokens < 1:
        return
    prompt = tuple(token_id % vocab_size for token_id in range(num_tokens))
    engine.submit([Request("warm-up", prompt, 2, SamplingParams(temperature=0.0))])
    while engine.has_work:
        for event in engine.step().events:
            if event.finish == "error":
                raise StartupFailed(f"the model loads, but can't compute: {event.error}")


def describe(
    engine: Engine, manager: CacheManager, kinds: Kinds, *, max_model_len: int, quantization: str = "none"
) -> Ready:
    """What the API process should know of the engine."""
    groups = engine.stats().groups
    return Ready(
        cache_tokens=manager.capacity_tokens,
        cache_bytes=sum((group.used + group.cached + group.free) * group.block_bytes for group in groups),
        max_model_len=max_model_len,
        device=str(kinds.device),
        backend=kinds.backend.name,
        dtype=_name_of(kinds.dtype),
        kv_cache_dtype=_name_of(kinds.kv_dtype),
        threads=kinds.threads,
        bit_exact=kinds.backend.team is not None,
        load_seconds=0.0,  # whoever knows when the process began fills it in
        kernels=kinds.backend.kernels,
        note=kinds.backend.note,
        kernels_version=kinds.backend.kernels_version,
        quantization=quantization,
    )


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
