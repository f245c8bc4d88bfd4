"""A `Weight`: a matrix (rows out, columns in) that owns its storage format and its matmul.

The decoder sees nothing but this face, so a packed 4-bit matrix can stand where a dense one stood.
"""

from typing import Protocol

from torch import Tensor


class Weight(Protocol):
    """R rows (outputs), C columns (inputs), T tokens."""

    @property
    def shape(self) -> tuple[int, int]:
        """(R, C)."""
        ...

    def matmul(self, x: Tensor) -> Tensor:
        """x (T, C) -> x W^T (T, R), in x's dtype."""
        ...

    def take(self, rows: Tensor) -> Tensor:
        """rows (T,) int64 -> those rows (T, C), dequantised. What an embedding does."""
        ...
