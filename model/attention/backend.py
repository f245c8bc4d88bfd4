"""What attention needs from the KV cache and what the decoder needs from attention.

T tokens, Hkv KV heads, H query heads, D head size. `KVStore` is stated here and satisfied by `cache.pool`.
"""

from typing import Protocol

from torch import Tensor

from model.batch import StepBatch


class KVStore(Protocol):
    """Paged keys and values of every layer. Layers are split into groups that share block tables."""

    @property
    def block_size(self) -> int:
        """Positions per block."""
        ...

    def group_of(self, layer_id: int) -> int:
        """Which of a chunk's block tables belongs to this layer."""
        ...

    def keys(self, layer_id: int) -> Tensor:
        """(num_blocks, block_size, Hkv, D), the storage itself. Block 0 is the null block and stays zero."""
        ...

    def values(self, layer_id: int) -> Tensor:
        """(num_blocks, block_size, Hkv, D), the storage itself. Block 0 is the null block and stays zero."""
        ...

    def scales(self, layer_id: int) -> tuple[Tensor, Tensor] | None:
        """Of keys and of values, (num_blocks, block_size, Hkv) float32, where they are int8 codes; else None."""
        ...

    def write(self, layer_id: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values (T, Hkv, D) at slots (T,), slot = block * block_size + position % block_size."""
        ...


class AttentionBackend(Protocol):
    """Writes this step's keys and values, then attends over the cache."""

    @property
    def padded(self) -> bool:
        """Whether it reads the pieces of `CacheView`, with their masks; if not, it reads the block tables."""
        ...

    def attend(
        self,
        layer_id: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        batch: StepBatch,
        kv: KVStore,
        *,
        scale: float,
        window: int | None,
    ) -> Tensor:
        """queries (T, H, D), keys and values (T, Hkv, D), already rotated -> (T, H, D)."""
        ...
