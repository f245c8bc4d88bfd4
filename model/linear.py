"""A weight and, where the family has one, its bias."""

from dataclasses import dataclass

from torch import Tensor

from model.kernels import matmul
from model.quant.weight import Weight


@dataclass(frozen=True, slots=True)
class Linear:
    """x (T, C) -> x W^T + bias (T, R)."""

    weight: Weight
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """(T, C) -> (T, R)."""
        out = matmul(x, self.weight)
        return out if self.bias is None else out + self.bias
