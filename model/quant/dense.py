"""Weights that are plain tensors, in float32, bfloat16 or float64."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class DenseWeight:
    """tensor (R, C). Satisfies `model.quant.weight.Weight`."""

    tensor: Tensor

    @classmethod
    def stacked(cls, parts: Sequence[Tensor]) -> "DenseWeight":
        """One matrix of the rows of several, so that one multiplication does the work of several."""
        return cls(parts[0] if len(parts) == 1 else torch.cat(tuple(parts)))

    @property
    def shape(self) -> tuple[int, int]:
        """(R, C)."""
        return self.tensor.shape[0], self.tensor.shape[1]

    def matmul(self, x: Tensor) -> Tensor:
        """x (T, C) -> (T, R)."""
        if x.shape[0] == 1 or x.is_cuda:
            return functional.linear(x, self.tensor)
        # The BLAS of a CPU reads a tall W once in W x^T, where x W^T for a few rows of x costs up to twice as much.
        return torch.mm(self.tensor, x.t()).t()

    def take(self, rows: Tensor) -> Tensor:
        """rows (T,) -> (T, C)."""
        return functional.embedding(rows, self.tensor)
