"""Rotary position embeddings: the angles of each position, with every way of reaching longer contexts.

Knows positions; knows no queries or keys (`model.kernels.rotate` turns those). T tokens, D head size.

A position's angles depend on that position alone, so cached keys stay right whatever comes later. For "dynamic"
scaling this means: position p turns as in a text of p + 1 tokens, which is what the original does when it is fed token
by token. Angles are float32 products as in the original; their sines are taken in float64, so that they are the same
bits wherever a token lies in the step.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from model.config import RopeConfig
from model.kernels.dispatch import op


@dataclass(frozen=True, slots=True)
class Rotary:
    """frequencies (D/2,) float32; magnitude multiplies sines and cosines (yarn's attention factor)."""

    config: RopeConfig
    head_dim: int
    frequencies: Tensor
    magnitude: float

    @classmethod
    def of(cls, config: RopeConfig, *, head_dim: int, device: torch.device) -> "Rotary":
        """Computes the frequencies once."""
        frequencies = _frequencies(config, head_dim).to(device)
        return cls(config, head_dim, frequencies, _magnitude(config) if config.scaling == "yarn" else 1.0)

    def __call__(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """positions (T,) -> cosines and sines (T, 1, D/2), to be broadcast over heads."""
        per_position = positions.to(torch.float32)[:, None]
        dynamic = self.config.scaling == "dynamic"
        frequencies = _dynamic_frequencies(self.config, self.head_dim, positions) if dynamic else self.frequencies
        angles = (per_position * frequencies).to(torch.float64)[:, None, :]
        return (angles.cos() * self.magnitude).to(dtype), (angles.sin() * self.magnitude).to(dtype)


@op
def turn(positions: Tensor, rotary: Rotary, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """positions (T,) -> cosines and sines (T, 1, D/2)."""
    return rotary(positions, dtype)


def _frequencies(config: RopeConfig, head_dim: int) -> Tensor:
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / config.base**exponents
    if config.divisors:
        plain = plain / torch.tensor(config.divisors, dtype=torch.float32)
    match config.scaling:
        case "linear":
            return plain / config.params["factor"]
        case "llama3":
            return _llama3(plain, config)
        case "yarn":
            return _yarn(plain, config, head_dim)
        case _:
            return plain


def _llama3(plain: Tensor, config: RopeConfig) -> Tensor:
    """Llama 3.1: long waves are stretched by factor, short ones kept, those between blended linearly."""
    params = config.params
    turns = params["original_max_position_embeddings"] * plain / (2 * math.pi)  # within the trained length
    low, high = params["low_freq_factor"], params["high_freq_factor"]
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return plain * (keep + (1.0 - keep) / params["factor"])


def _yarn(plain: Tensor, config: RopeConfig, head_dim: int) -> Tensor:
    """YaRN (Peng et al. 2023), section 3.2: dimensions that turn often are kept, those that turn seldom stretched."""
    params = config.params

    def dimension(turns: float) -> float:
        """The (fractional) pair that turns so often within the trained length."""
        length = params["original_max_position_embeddings"]
        return head_dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(config.base))

    low, high = dimension(params.get("beta_fast") or 32.0), dimension(params.get("beta_slow") or 1.0)
    if params.get("truncate", 1.0):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low if high != low else 0.001
    stretch = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / width).clamp(0.0, 1.0)
    return plain * (1.0 - stretch) + plain / params["factor"] * stretch


def _magnitude(config: RopeConfig) -> float:
    """YaRN's attention temperature, as a factor on q and k both."""
    params = config.params
    if params.get("attention_factor"):
        return params["attention_factor"]

    def scale(weight: float) -> float:
        return 1.0 if params["factor"] <= 1 else 0.1 * weight * math.log(params["factor"]) + 1.0

    if params.get("mscale") and params.get("mscale_all_dim"):
        return scale(params["mscale"]) / scale(params["mscale_all_dim"])
    return scale(1.0)


def _dynamic_frequencies(config: RopeConfig, head_dim: int, positions: Tensor) -> Tensor:
    """NTK scaling that grows with the length ("dynamic NTK"): positions (T,) -> (T, D/2) float32."""
    original, factor = config.params["original_max_position_embeddings"], config.params["factor"]
    length = (positions.to(torch.float64) + 1.0).clamp(min=original)
    base = config.base * (factor * length / original - (factor - 1.0)) ** (head_dim / (head_dim - 2))
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=positions.device) / head_dim
    return (1.0 / base[:, None] ** exponents).to(torch.float32)
