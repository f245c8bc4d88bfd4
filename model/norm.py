"""RMSNorm with its weight prepared: widened to at least float32, the family's offset added."""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.kernels import rms_norm


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """weight (C,) as `rms_norm` wants it."""

    weight: Tensor
    eps: float

    @classmethod
    def of(cls, weight: Tensor, *, eps: float, offset: float) -> "RMSNorm":
        """weight as it is stored; offset is 1 where the family multiplies by 1 + weight."""
        return cls(weight.to(torch.promote_types(weight.dtype, torch.float32)) + offset, eps)

    def __call__(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return rms_norm(x, self.weight, self.eps)
