"""Every operation of the decoder but attention, in torch: the reference for faster kernels.

Each is a pure function of tensors whose every output row depends on the same row of its inputs and nothing else.
T tokens, C columns, R rows of a matrix, H heads, D head size.
"""

import torch
from torch import Tensor
from torch.nn import functional

from model.kernels.dispatch import op
from model.quant.weight import Weight


@op
def take(rows: Tensor, weight: Weight) -> Tensor:
    """rows (T,) int64 -> those rows of the weight (T, C). What an embedding does."""
    return weight.take(rows)


@op
def matmul(x: Tensor, weight: Weight) -> Tensor:
    """x (T, C) -> x W^T (T, R)."""
    return weight.matmul(x)


@op
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich 2019), in weight's type, back to x's.

    x (..., C), weight (C,) in float32 (or float64); a family's offset is in the weight already.
    """
    wide = x.to(weight.dtype)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


@op
def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding (Su et al. 2021) in the layout that pairs number i with number i + D/2.

    x (T, H, D), cos and sin (T, 1, D/2) -> (T, H, D)
    """
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


@op
def silu_gate(gate: Tensor, up: Tensor) -> Tensor:
    """SwiGLU's middle: silu(gate) * up, elementwise."""
    return functional.silu(gate) * up


@op
def gelu_tanh_gate(gate: Tensor, up: Tensor) -> Tensor:
    """GeGLU's middle with the tanh form of gelu: gelu(gate) * up, elementwise."""
    return functional.gelu(gate, approximate="tanh") * up
