"""Memory for weights: one large mapping instead of hundreds of small ones, on huge pages where the system has them."""

import mmap

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 64  # a cache line
_CHUNK_BYTES = 64 << 20


class Arena:
    """Hands out aligned pieces, which live as long as somebody holds them. Pages are used only once written to.

    What is left over of a chunk when the next piece doesn't fit is never touched, so it costs addresses, not memory.
    """

    def __init__(self, chunk_bytes: int = _CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._rest: NDArray[np.uint8] = np.empty(0, np.uint8)

    def take(self, num_bytes: int) -> NDArray[np.uint8]:
        """num_bytes zeros, aligned to a cache line."""
        padded = -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        if padded > len(self._rest):
            self._rest = _mapping(max(padded, self._chunk_bytes))
        piece, self._rest = self._rest[:num_bytes], self._rest[padded:]
        return piece


def _mapping(num_bytes: int) -> NDArray[np.uint8]:
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
