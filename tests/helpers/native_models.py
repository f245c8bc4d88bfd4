"""Tiny random models whose weights are packed for the native kernels, and the same values as dense torch weights.

Test modules that use the native library skip where it was not built.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from torch import Tensor

from model.building import build_decoder
from model.checkpoint.stored import FLOATS, Stored, decode
from model.config import ModelConfig
from model.decoder import Decoder
from model.families.registry import to_model_config, weight_shapes
from model.kernels.native import Team
from model.native_runner import NativeRunner
from model.quant.dense import DenseWeight
from model.quant.packed import PackedWeight
from tests.helpers.native_teams import native_team
from tests.helpers.paged import PlainKV

SIZES: Mapping[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama mqa, tied": {"model_type": "llama", "num_key_value_heads": 1, "tie_word_embeddings": True},
    "llama biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama dynamic": {"model_type": "llama", "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    "llama odd sizes": {"model_type": "llama", "hidden_size": 44, "intermediate_size": 70, "head_dim": 10},
    "mistral window": {"model_type": "mistral", "sliding_window": 7},
    "qwen2": {"model_type": "qwen2", "num_key_value_heads": 4},
    "qwen3 yarn": {"model_type": "qwen3", "rope_scaling": YARN},
    "gemma3": {"model_type": "gemma3_text", "sliding_window": 9, "num_hidden_layers": 7, "num_key_value_heads": 1},
}


def config_of(name: str, **changes: Any) -> ModelConfig:
    """One of CONFIGS, with other sizes if wanted."""
    return to_model_config({**SIZES, **CONFIGS[name], **changes})


@dataclass(frozen=True)
class Both:
    """The same weights for torch and for the native kernels. rounded: torch, but activations rounded as these do it."""

    dense: Decoder
    rounded: Decoder
    native: Decoder


@dataclass(frozen=True)
class Rounded:
    """A dense weight whose inputs are rounded to int8 codes per block of 32 columns. Satisfies `Weight`."""

    weight: DenseWeight

    @property
    def shape(self) -> tuple[int, int]:
        return self.weight.shape

    def take(self, rows: Tensor) -> Tensor:
        return self.weight.take(rows)

    def matmul(self, x: Tensor) -> Tensor:
        blocks = x.unflatten(1, (-1, 32))
        most = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30)
        return self.weight.matmul(((blocks * (127 / most)).round() * (most / 127)).flatten(1))


def make_both(
    config: ModelConfig,
    kind: str | Sequence[str] = "F32",
    *,
    seed: int = 0,
    on: Team | None = None,
    broken_token: int | None = None,
) -> Both:
    """Random weights, large enough that an answer depends on all of its prompt, stored as `kind`.

    Several kinds take turns, so that q, k and v differ. The embedding of broken_token (not when tied) is NaN.
    """
    kinds = (kind,) if isinstance(kind, str) else tuple(kind)
    rng = np.random.default_rng(seed)
    tensors: dict[str, torch.Tensor] = {}
    stored: dict[str, Stored] = {}
    for number, (name, shape) in enumerate(weight_shapes(config).items()):
        noise = rng.standard_normal(shape, np.float32)
        if len(shape) == 1:
            tensors[name] = torch.from_numpy(0.2 * noise + (0.0 if "bias" in name else 1.0 - config.norm_offset))
            continue
        values = noise * np.float32(1.5 / shape[1] ** 0.5)
        if broken_token is not None and "embed" in name:
            values[broken_token] = np.nan
        stored[name] = _store(values, kinds[number % len(kinds)])
    dense = tensors | {name: torch.from_numpy(decode(each).astype(np.float32)) for name, each in stored.items()}
    threads = on or native_team()

    def rounded(names: Sequence[str]) -> Rounded:
        return Rounded(DenseWeight.stacked([dense[name] for name in names]))

    return Both(
        build_decoder(config, dict(dense)),
        build_decoder(config, dict(dense), matrix=rounded),
        build_decoder(
            config, dict(tensors), matrix=lambda names: PackedWeight.stacked([stored[name] for name in names], threads)
        ),
    )


def native_runner(
    *, threads: int = 2, isa: str | None = None, join: bool = True, max_len: int = 1024
) -> Callable[[Decoder, PlainKV], NativeRunner]:
    """What `Paged` makes its runner with."""

    def make(decoder: Decoder, kv: PlainKV) -> NativeRunner:
        return NativeRunner(decoder, kv, native_team(threads, isa), max_tokens=512, max_len=max_len, join=join)

    return make


def _store(values: "np.ndarray[Any, np.dtype[np.float32]]", kind: str) -> Stored:
    if kind == "BF16":
        data = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint8).numpy()
    elif kind == "F16":
        data = values.astype(np.float16).view(np.uint8)
    elif kind in FLOATS:
        data = values.view(np.uint8)
    else:
        data = quantize(values, GGMLQuantizationType[kind])
    return Stored(kind, values.shape, data)
