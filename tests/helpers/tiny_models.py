"""Tiny random float64 decoders, exact enough that company never changes a token, with the real cache around them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cache.groups import group_layers
from cache.manager import CacheManager
from cache.pool import KVPool
from model.attention.reference import TorchAttention
from model.building import build_decoder
from model.config import ModelConfig, RopeConfig
from model.decoder import Decoder
from model.families.registry import weight_shapes
from model.quant.weight import Weight
from model.runner import ModelRunner
from model.sampling import Sampler
from server.engine.reloading import Reloading
from server.engine.request import Request
from tests.helpers.worlds import Answer, Setting, World, make_world

VOCAB = 24


def tiny_config(windows: Sequence[int | None]) -> ModelConfig:
    """A Llama where every layer sees everything, else something like Gemma 3."""
    windowed = any(window is not None for window in windows)
    return ModelConfig(
        family="gemma3" if windowed else "llama",
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_layers=len(windows),
        num_heads=4,
        num_kv_heads=2,
        head_dim=6,
        context_length=256,
        norm_eps=1e-6,
        rope=RopeConfig(base=10_000.0),
        tie_embeddings=windowed,
        activation="gelu_tanh" if windowed else "silu",
        norm_offset=1.0 if windowed else 0.0,
        sandwich_norm=windowed,
        qk_norm=windowed,
        embedding_scale=4.0 if windowed else 1.0,
        local_rope=RopeConfig(base=100.0) if windowed else None,
        windows=tuple(windows),
    )


def tiny_decoder(windows: Sequence[int | None], *, seed: int = 0, broken_token: int | None = None) -> Decoder:
    """Random weights, so large that the answer depends on all of the prompt; the embedding of broken_token is NaN."""
    config = tiny_config(windows)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in weight_shapes(config).items():
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        is_norm = len(shape) == 1
        tensors[name] = 0.2 * noise + (1.0 - config.norm_offset) if is_norm else 0.5 * noise
    decoder = build_decoder(config, tensors)
    return decoder if broken_token is None else replace(decoder, embedding=_Broken(decoder.embedding, broken_token))


@dataclass(frozen=True)
class _Broken:
    """An embedding that is NaN for one token; as the head it is sound."""

    weight: Weight
    token: int

    def take(self, rows: Tensor) -> Tensor:
        return self.weight.take(rows).masked_fill((rows == self.token)[:, None], torch.nan)


MakeRunner = Callable[[Decoder, KVPool], Any]


def torch_runner(decoder: Decoder, pool: KVPool) -> ModelRunner:
    """The reference."""
    return ModelRunner(decoder, pool, TorchAttention(), torch.device("cpu"))


def make_real_world(
    decoder: Decoder,
    setting: Setting,
    *,
    runner: MakeRunner = torch_runner,
    kv_dtype: torch.dtype | None = None,
    disk: Callable[[CacheManager, KVPool], Reloading] | None = None,
) -> World:
    """The engine over a decoder, a pool and the real sampler. The setting's windows are those of its KV groups."""
    config = decoder.config
    groups = group_layers(config.windows or (None,) * config.num_layers)
    assert tuple(group.window for group in groups) == setting.windows
    pool = KVPool(
        groups,
        [n + 1 for n in setting.num_blocks],
        block_size=setting.block_size,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        dtype=kv_dtype or decoder.dtype,
    )
    return make_world(
        setting,
        runner=runner(decoder, pool),
        clear=pool.clear,
        sampler=Sampler(),
        disk=(lambda manager, _: disk(manager, pool)) if disk else None,
    )


def alone(
    decoder: Decoder, request: Request, *, runner: MakeRunner = torch_runner, kv_dtype: torch.dtype | None = None
) -> Answer:
    """What a request gets with plenty of everything and nobody else: its prompt in one chunk, nothing cached."""
    config = decoder.config
    windows = tuple(group.window for group in group_layers(config.windows or (None,) * config.num_layers))
    blocks = (len(request.prompt) + request.max_tokens) // 4 + 2
    setting = Setting(
        windows, (blocks,) * len(windows), max_num_seqs=1, max_num_batched_tokens=1024, prefix_cache=False
    )
    return make_real_world(decoder, setting, runner=runner, kv_dtype=kv_dtype).run([request])[request.id]
