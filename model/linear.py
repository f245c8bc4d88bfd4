"""A weight and, where the family has one, its bias."""

from dataclasses import dataclass

from torch import Tensor

from model.quant.weight import Weight


@dataclass(frozen=True, slots=True)
class Linear:
    """x (T, C) -> x W^T + bias (T, R)."""

    weight: Weight
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """(T, C) -> (T, R)."""
        out = self.weight.matmul(x)
        return out if self.bias is None else out + self.bias
