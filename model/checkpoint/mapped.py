"""A file of weights, memory-mapped piece by piece. Knows bytes and offsets only.

Each view is a mapping of its own, so that the memory of a tensor is given back when its view goes away, and
loading a model holds one tensor of it twice, not the whole file.
"""

import hashlib
import mmap
import os
import weakref
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.errors import CheckpointError


class MappedFile:
    """An open file. It stays the same file when the name is given to another one meanwhile."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror}") from error
        weakref.finalize(self, os.close, self._fd)
        self.path = path
        self.size = os.fstat(self._fd).st_size
        if not self.size:
            raise CheckpointError(f"{path}: the file is empty")

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`, copied."""
        return os.pread(self._fd, length, offset)

    def map(self, offset: int, length: int) -> memoryview:
        """`length` > 0 bytes from `offset`, in place. Writing to them never reaches the file (private mapping)."""
        assert length > 0, (self.path, offset, length)
        assert 0 <= offset <= self.size - length, (self.path, offset, length)
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        mapping = mmap.mmap(self._fd, offset + length - start, access=mmap.ACCESS_COPY, offset=start)
        return memoryview(mapping)[offset - start :]

    def view(self, offset: int, length: int) -> NDArray[np.uint8]:
        """The same as an array."""
        return np.frombuffer(self.map(offset, length), np.uint8)


def add_samples(sha: "hashlib._Hash", file: MappedFile, spans: Iterable[tuple[int, int]]) -> None:
    """Feed a hash one page from the middle of each (offset, length) of the file."""
    for offset, length in spans:
        start = max(0, length // 2 - mmap.PAGESIZE // 2)
        sha.update(file.read(offset + start, min(mmap.PAGESIZE, length - start)))
