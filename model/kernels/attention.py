"""Python's face of the native paged attention (csrc/attention.h): a step's plan, and one layer's call.

T tokens, B chunks, H query heads, Hkv KV heads, D head size. Knows memory and numbers; knows no layers and no engine.
"""

import ctypes
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.kernels.native import Team
from model.kernels.ops import STORED, CacheLayer

_ITEM = np.dtype([("queries_and_ranges", "i4", 8), ("partial", "i8")])
_LINE = 64  # bytes


class _Plan(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("num_items", "num_groups", "partial_rows")]


class _Call(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("queries", "out")),
        *((name, ctypes.c_int64) for name in ("query_stride", "out_stride")),
        *((name, ctypes.c_void_p) for name in ("keys", "values", "key_scales", "value_scales")),
        *(
            (name, ctypes.c_int32)
            for name in ("stored", "block_size", "num_heads", "num_kv_heads", "head_dim", "window")
        ),
        ("scale", ctypes.c_float),
        ("num_items", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("chunks", "tables", "items", "counters", "partials", "scratch")),
    ]


@dataclass(frozen=True, slots=True)
class HeadShape:
    """How many heads attention has, and how large they are."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Which thread may do what in one step, for all layers of one window, and the memory that this needs.

    chunks  (B, 4) int64: row of the first token, its absolute position, number of tokens, where its table begins
    tables  int32 block numbers; position p of chunk b lies in block tables[chunks[b, 3] + p // block_size]
    """

    team: Team
    shape: HeadShape
    window: int | None
    chunks: NDArray[np.int64]
    tables: NDArray[np.int32]
    items: NDArray[np.void]
    counters: NDArray[np.int32]
    partials: NDArray[np.float32]
    scratch: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        team: Team,
        chunks: NDArray[np.int64],
        tables: NDArray[np.int32],
        *,
        shape: HeadShape,
        window: int | None,
    ) -> "AttentionPlan":
        """chunks and tables as above, contiguous; what a window has left is never read."""
        library = team.library
        plan = _Plan()

        def make(items: NDArray[np.void]) -> None:
            library.kvell_plan_attention(
                chunks.ctypes.data,
                len(chunks),
                shape.num_heads,
                shape.num_kv_heads,
                window or 0,
                team.threads,
                items.ctypes.data,
                len(items),
                ctypes.byref(plan),
            )

        items = np.empty(4 * len(chunks) + 64, dtype=_ITEM)
        make(items)
        if plan.num_items > len(items):
            items = np.empty(plan.num_items, dtype=_ITEM)
            make(items)
        row_floats = library.kvell_attention_row_floats(shape.head_dim)
        per_thread = library.kvell_attention_scratch_floats(shape.num_heads, shape.num_kv_heads, shape.head_dim)
        return cls(
            team=team,
            shape=shape,
            window=window,
            chunks=chunks,
            tables=tables,
            items=items[: plan.num_items],
            counters=np.zeros(plan.num_groups * shape.num_kv_heads, dtype=np.int32),
            partials=np.empty(plan.partial_rows * shape.num_kv_heads * row_floats, dtype=np.float32),
            scratch=_aligned_floats(per_thread * team.threads),
        )

    def attend(
        self,
        queries: Tensor,
        cache: CacheLayer,
        out: Tensor,
        *,
        scale: float,
    ) -> None:
        """Attention of the step's queries (T, H, D) float32 over one layer's cache -> out (T, H, D) float32.

        The step's own keys and values are in the cache already. A token's heads must be contiguous.
        """
        shape, keys, values, scales = self.shape, cache.keys, cache.values, cache.scales
        assert queries.dtype == out.dtype == torch.float32, (queries.dtype, out.dtype)
        assert queries.shape == out.shape, (queries.shape, out.shape)
        assert queries.shape[1:] == (shape.num_heads, shape.head_dim), queries.shape
        assert queries[0].is_contiguous(), queries.stride()
        assert out[0].is_contiguous(), out.stride()
        assert keys.shape[2:] == values.shape[2:] == (shape.num_kv_heads, shape.head_dim), keys.shape
        assert keys.is_contiguous(), keys.stride()
        assert values.is_contiguous(), values.stride()
        assert keys.dtype == values.dtype, (keys.dtype, values.dtype)
        assert (scales is not None) == (keys.dtype == torch.int8)
        call = _Call(
            queries.data_ptr(),
            out.data_ptr(),
            queries.stride(0),
            out.stride(0),
            keys.data_ptr(),
            values.data_ptr(),
            None if scales is None else scales[0].data_ptr(),
            None if scales is None else scales[1].data_ptr(),
            STORED[keys.dtype],
            keys.shape[1],
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            self.window or 0,
            scale,
            len(self.items),
            *(
                array.ctypes.data
                for array in (self.chunks, self.tables, self.items, self.counters, self.partials, self.scratch)
            ),
        )
        self.team.library.kvell_attend(self.team.handle, ctypes.byref(call))


def _aligned_floats(count: int) -> NDArray[np.float32]:
    raw = np.empty(count * 4 + _LINE, dtype=np.uint8)
    skip = -raw.ctypes.data % _LINE
    return raw[skip : skip + count * 4].view(np.float32)
