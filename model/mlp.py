"""The gated feed-forward part of a layer: down(act(gate(x)) * up(x)), gate and up in one matrix."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from model.kernels import gelu_tanh_gate, silu_gate
from model.linear import Linear


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """gate_up (2 I, C): gate's I rows, then up's. down (C, I). SwiGLU and GeGLU: Shazeer 2020."""

    gate_up: Linear
    down: Linear
    activation: Literal["silu", "gelu_tanh"]

    def __call__(self, x: Tensor) -> Tensor:
        """(T, C) -> (T, C)."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        act = silu_gate if self.activation == "silu" else gelu_tanh_gate
        return self.down(act(gate, up))
