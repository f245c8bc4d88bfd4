"""The memory of the KV cache: keys and values of every layer, in blocks. The only file of `cache` with tensors.

T tokens, Hkv KV heads, D head size. Satisfies `model.attention.backend.KVStore` without knowing it. Does not know who
owns which block.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from cache.groups import KVGroup

_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


class KVPool:
    """Per layer one contiguous tensor of keys and one of values, (num_blocks, block_size, Hkv, D).

    num_blocks[g] is the size of group g's layers, the null block 0 included. All zeros at first; on a CPU the
    operating system commits memory only as blocks are written. dtype is any floating type, device any device.
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

    def write(self, layer_id: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values (T, Hkv, D) at slots (T,), slot = block * block_size + position % block_size.

        They are rounded to the pool's dtype. slots are int64, distinct, and never in the null block.
        """
        for storage, new in ((self._keys[layer_id], keys), (self._values[layer_id], values)):
            storage.flatten(0, 1).index_copy_(0, slots, new.to(storage.dtype))

    def clear(self, group: int, blocks: Iterable[int]) -> None:
        """Zero these blocks in all layers of a group, so that nothing that is not finite stays in them."""
        ids = torch.tensor(list(blocks), dtype=torch.int64)
        if not len(ids):
            return
        for layer in self._groups[group].layers:
            for storage in (self._keys[layer], self._values[layer]):
                storage.index_fill_(0, ids.to(storage.device), 0)

    def block_bytes(self, group: int) -> int:
        """Bytes of one block of this group: keys and values of all its layers."""
        return self._block_bytes * len(self._groups[group].layers)


def bytes_per_token(num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Bytes of keys and values of one token in one layer."""
    return 2 * num_kv_heads * head_dim * dtype.itemsize


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros. On a CPU the pages are not touched, so they cost nothing until written (torch.zeros writes them)."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = math.prod(shape) * dtype.itemsize
    raw = np.zeros(num_bytes + _ALIGNMENT, dtype=np.uint8)
    skip = -raw.ctypes.data % _ALIGNMENT
    return torch.from_numpy(raw[skip : skip + num_bytes]).view(dtype).view(shape)
