"""Tiny random models of every family, as transformers makes them, and the same as kvell's decoders, one per backend."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from model.building import build_decoder
from model.checkpoint.stored import Stored
from model.config import ModelConfig
from model.decoder import Decoder
from model.families.registry import to_model_config, weight_shapes
from model.quant.packed import PackedWeight
from tests.helpers.native_models import native_runner
from tests.helpers.native_teams import native_team
from tests.helpers.paged import Paged


@dataclass(frozen=True)
class Pair:
    """The original and ours, with the same weights."""

    original: Any
    config: ModelConfig
    weights: dict[str, Tensor]

    def paged(self, backend: str = "torch", **options: Any) -> Paged:
        """Ours over a cache, on one of BACKENDS."""
        if backend == "torch":
            return Paged(build_decoder(self.config, dict(self.weights)), **options)
        return Paged(self._native(), runner=native_runner(), **options)

    def _native(self) -> Decoder:
        def packed(names: Sequence[str]) -> PackedWeight:
            return PackedWeight.stacked([stored(self.weights[name]) for name in names], native_team())

        vectors = {name: weight for name, weight in self.weights.items() if weight.dim() == 1}
        return build_decoder(self.config, vectors, matrix=packed)

    def expected(self, tokens: list[int]) -> Tensor:
        """The original's logits (T, V) at every position, from one forward pass."""
        with torch.no_grad():
            return self.original(torch.tensor([tokens])).logits[0]


def stored(matrix: Tensor) -> Stored:
    return Stored("F32", tuple(matrix.shape), matrix.contiguous().numpy().view("u1"))


def make_pair(config: Any, *, dtype: torch.dtype = torch.float32, seed: int = 0) -> Pair:
    """Random weights, norms and biases included: what starts as ones or zeros would hide a mistake."""
    torch.manual_seed(seed)
    original = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(dtype).eval()
    with torch.no_grad():
        for name, parameter in original.named_parameters():
            spread = 0.3 if "norm" in name or "bias" in name else 1.5 / parameter.shape[-1] ** 0.5
            parameter.add_(torch.randn_like(parameter) * spread)
    ours = to_model_config(original.config.to_dict())
    state = original.state_dict()
    return Pair(original, ours, {name: state[name].clone() for name in weight_shapes(ours)})


@pytest.fixture(scope="session")
def pair() -> Callable[..., Pair]:
    """make_pair, as a fixture, because tests cannot import a conftest."""
    return make_pair
