"""The memory of the KV cache: keys and values of every layer, in blocks. The only file of `cache` with tensors.

T tokens, Hkv KV heads, D head size. Satisfies `model.attention.backend.KVStore` without knowing it. Does not know who
owns which block.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cache.groups import KVGroup

CODES = torch.int8
_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
_HUGE_PAGE = 2 << 20  # what memory is mapped by, where the system can: so the first blocks lie on one, too


class KVPool:
    """Per layer one contiguous tensor of keys and one of values, (num_blocks, block_size, Hkv, D).

    num_blocks[g] is the size of group g's layers, the null block 0 included. All zeros at first; on a CPU the
    operating system commits memory only as blocks are written. dtype is any floating type or int8, device any device.
    int8 keeps codes, and beside them a scale per token and KV head: a number is code * scale.
    """

    def __init__(
        self,
        groups: Sequence[KVGroup],
        num_blocks: Sequence[int],
        *,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        assert len(groups) == len(num_blocks), f"{len(groups)} groups, {len(num_blocks)} pool sizes"
        layers = sorted(layer for group in groups for layer in group.layers)
        assert layers == list(range(len(layers))), f"each layer belongs to exactly one group, got layers {layers}"
        self._groups = tuple(groups)
        self._block_size = block_size
        self._block_bytes = bytes_per_token(num_kv_heads, head_dim, dtype) * block_size
        self._group_of = {layer: g for g, group in enumerate(groups) for layer in group.layers}
        shapes = {layer: (num_blocks[g], block_size, num_kv_heads, head_dim) for layer, g in self._group_of.items()}
        self._keys = [lazy_zeros(shapes[layer], dtype, torch.device(device)) for layer in layers]
        self._values = [lazy_zeros(shapes[layer], dtype, torch.device(device)) for layer in layers]
        self._scales = [self._scale_planes(shapes[layer][:3], device) for layer in layers] if dtype == CODES else []

    @staticmethod
    def _scale_planes(shape: tuple[int, ...], device: torch.device | str) -> tuple[Tensor, Tensor]:
        keys, values = (lazy_zeros(shape, torch.float32, torch.device(device)) for _ in range(2))
        return keys, values

    @property
    def block_size(self) -> int:
        """Positions per block."""
        return self._block_size

    def group_of(self, layer_id: int) -> int:
        """Which of a chunk's block tables belongs to this layer."""
        return self._group_of[layer_id]

    def keys(self, layer_id: int) -> Tensor:
        """(num_blocks, block_size, Hkv, D), the storage itself. Block 0 is the null block and stays zero."""
        return self._keys[layer_id]

    def values(self, layer_id: int) -> Tensor:
        """(num_blocks, block_size, Hkv, D), the storage itself. Block 0 is the null block and stays zero."""
        return self._values[layer_id]

    def scales(self, layer_id: int) -> tuple[Tensor, Tensor] | None:
        """Of keys and of values, (num_blocks, block_size, Hkv) float32, where they are int8 codes; else None."""
        return self._scales[layer_id] if self._scales else None

    def write(self, layer_id: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values (T, Hkv, D) at slots (T,), slot = block * block_size + position % block_size.

        They are rounded to the pool's dtype. slots are int64, distinct, and never in the null block.
        """
        new = [keys, values]
        if self._scales:
            coded = [coded_rows(part) for part in new]
            new = [codes for codes, _ in coded]
            for plane, (_, scales) in zip(self._scales[layer_id], coded, strict=True):
                plane.flatten(0, 1).index_copy_(0, slots, scales)
        for storage, part in zip((self._keys[layer_id], self._values[layer_id]), new, strict=True):
            storage.flatten(0, 1).index_copy_(0, slots, part.to(storage.dtype))

    def clear(self, group: int, blocks: Iterable[int]) -> None:
        """Zero these blocks in all layers of a group, so that nothing that is not finite stays in them."""
        ids = torch.tensor(list(blocks), dtype=torch.int64)
        if not len(ids):
            return
        for layer in self._groups[group].layers:
            for storage in (self._keys[layer], self._values[layer], *(self._scales[layer] if self._scales else ())):
                storage.index_fill_(0, ids.to(storage.device), 0)

    def block_bytes(self, group: int) -> int:
        """Bytes of one block of this group: keys and values of all its layers."""
        return self._block_bytes * len(self._groups[group].layers)

    def bytes_of_blocks(self) -> int:
        """Bytes of one block of every group: all that is kept of block_size tokens."""
        return sum(self.block_bytes(group) for group in range(len(self._groups)))

    def export_blocks(self, blocks: Sequence[Sequence[int]]) -> NDArray[np.uint8]:
        """The bytes of n blocks of every group, blocks[group] (n,) -> (n, bytes_of_blocks). Copies."""
        out = np.empty((len(blocks[0]), self.bytes_of_blocks()), dtype=np.uint8)
        for group, start, plane in self._planes():
            out[:, start : start + plane.shape[1]] = _take(plane, blocks[group])
        return out

    def import_blocks(self, blocks: Sequence[Sequence[int]], data: NDArray[np.uint8]) -> None:
        """What `export_blocks` gave, into n blocks of every group; never the null block."""
        assert all(block for ids in blocks for block in ids), "the null block stays zero"
        for group, start, plane in self._planes():
            _put(plane, blocks[group], data[:, start : start + plane.shape[1]])

    def _planes(self) -> Iterator[tuple[int, int, Tensor]]:
        """Every storage as bytes (num_blocks, bytes per block), with its group and where it begins in a record."""
        start = 0
        for group, its in enumerate(self._groups):
            for layer in its.layers:
                scales = self._scales[layer] if self._scales else ()
                for storage in (self._keys[layer], self._values[layer], *scales):
                    plane = storage.flatten(1).view(torch.uint8)
                    yield group, start, plane
                    start += plane.shape[1]


def _take(plane: Tensor, blocks: Sequence[int]) -> NDArray[np.uint8]:
    """Rows of bytes. On a CPU numpy copies them over ten times as fast as torch's indexing."""
    if plane.device.type == "cpu":
        rows: NDArray[np.uint8] = plane.numpy()[list(blocks)]
        return rows
    return plane[_ids(blocks, plane)].cpu().numpy()


def _put(plane: Tensor, blocks: Sequence[int], rows: NDArray[np.uint8]) -> None:
    if plane.device.type == "cpu":
        plane.numpy()[list(blocks)] = rows
    else:
        plane.index_copy_(0, _ids(blocks, plane), torch.tensor(rows, device=plane.device))


def _ids(blocks: Sequence[int], plane: Tensor) -> Tensor:
    return torch.tensor(blocks, dtype=torch.int64, device=plane.device)


def bytes_per_token(num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Bytes of keys and values of one token in one layer, with the scales of codes."""
    scale_bytes = torch.float32.itemsize if dtype == CODES else 0
    return 2 * num_kv_heads * (head_dim * dtype.itemsize + scale_bytes)


def coded_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x (..., D) -> int8 codes (..., D) and scales (...) float32: max |x| / 127, codes to nearest, ties to even.

    A row with something that is no number, or infinite, becomes not a number as a whole. The bits are those of
    `store_codes` in model/kernels/csrc/ops_rows.h.
    """
    wide = x.to(torch.float32)
    most = wide.abs().amax(-1)
    finite = most.isfinite()
    inverse = torch.where(finite & (most > 2.0**-100), 127 / most, 0.0)
    codes = torch.where(finite[..., None], (wide * inverse[..., None]).round(), 1.0)
    return codes.to(CODES), torch.where(finite, most / 127, torch.nan)


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros. On a CPU the pages are not touched, so they cost nothing until written (torch.zeros writes them)."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = math.prod(shape) * dtype.itemsize
    alignment = _HUGE_PAGE if num_bytes >= _HUGE_PAGE else _ALIGNMENT
    raw = np.zeros(num_bytes + alignment, dtype=np.uint8)
    skip = -raw.ctypes.data % alignment
    return torch.from_numpy(raw[skip : skip + num_bytes]).view(dtype).view(shape)
