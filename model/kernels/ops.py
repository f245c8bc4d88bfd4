"""Python's face of the native row ops (csrc/ops.h): norms, rotary embedding, cache writes, gates, copies.

Each does what its reference in `model.kernels` does, in float32, the same bits whatever rows stand beside a row.
Tensors are float32 and lie on the CPU; rows may lie apart but are contiguous themselves. T tokens, C columns, H query
heads, Hkv KV heads, D head size, I intermediate size.
"""

import ctypes
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from model.kernels.native import BLOCK_BYTES, BLOCK_COLUMNS, Team

STORED = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}  # kvell_stored
_ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}


class NormCall(ctypes.Structure):
    """`kvell_norm` of csrc/ops.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "y", "post_weight", "weight", "out", "blocks")),
        *((name, ctypes.c_int64) for name in ("num_tokens", "x_stride", "y_stride", "out_stride")),
        ("columns", ctypes.c_int32),
        ("eps", ctypes.c_float),
    )


class RotaryCall(ctypes.Structure):
    """`kvell_rotary` of csrc/ops.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("qkv", "q_norm", "k_norm", "cos", "sin", "table_rows", "slots")),
        *((name, ctypes.c_void_p) for name in ("keys", "values", "key_scales", "value_scales")),
        *((name, ctypes.c_int64) for name in ("num_tokens", "qkv_stride")),
        *((name, ctypes.c_int32) for name in ("num_heads", "num_kv_heads", "head_dim", "stored")),
        ("eps", ctypes.c_float),
    )


class GateCall(ctypes.Structure):
    """`kvell_gate` of csrc/ops.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("gate_up", "out", "blocks")),
        *((name, ctypes.c_int64) for name in ("num_tokens", "gate_up_stride", "out_stride")),
        ("columns", ctypes.c_int32),
        ("activation", ctypes.c_int32),
    )


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """One layer's keys and values (num_blocks, block_size, Hkv, D); scales (num_blocks, block_size, Hkv) if int8."""

    keys: Tensor
    values: Tensor
    scales: tuple[Tensor, Tensor] | None = None


def blocks_for(num_tokens: int, columns: int) -> Tensor:
    """Room for a step's quantised activations: (T, ceil(C / 32) * 48) bytes."""
    return torch.empty(num_tokens, -(-columns // BLOCK_COLUMNS) * BLOCK_BYTES, dtype=torch.uint8)


def normalize(
    team: Team,
    x: Tensor,
    weight: Tensor | None,
    *,
    eps: float,
    y: Tensor | None = None,
    post_weight: Tensor | None = None,
    out: Tensor | None = None,
    blocks: Tensor | None = None,
) -> None:
    """x (T, C) += y, or += rms_norm(y, post_weight); then rms_norm(x, weight) to out (T, C), to blocks, or to both."""
    call = NormCall(
        x=x.data_ptr(),
        y=_at(y),
        post_weight=_at(post_weight),
        weight=_at(weight),
        out=_at(out),
        blocks=_at(blocks),
        num_tokens=x.shape[0],
        x_stride=_stride(x),
        y_stride=0 if y is None else _stride(y),
        out_stride=0 if out is None else _stride(out),
        columns=x.shape[1],
        eps=eps,
    )
    team.library.kvell_normalize(team.handle, ctypes.byref(call))


def rotate_and_store(
    team: Team,
    qkv: Tensor,
    turn: tuple[Tensor, Tensor],
    slots: Tensor,
    cache: CacheLayer,
    *,
    num_heads: int,
    norms: tuple[Tensor, Tensor] | None = None,
    eps: float = 0.0,
    table_rows: Tensor | None = None,
) -> None:
    """qkv (T, (H + 2 Hkv) D): queries are normalised and turned in place, keys on their way to the cache, values not.

    turn: cosines and sines (n, D/2), row table_rows[t] (int64), or t, for token t. slots (T,) int64, distinct.
    norms: weights (D,) for queries and keys.
    """
    cos, sin = turn
    _expect_contiguous(cos, sin)
    call = _cache_call(cache, slots)
    assert qkv.shape[1] == (num_heads + 2 * call.num_kv_heads) * call.head_dim, qkv.shape
    call.qkv, call.cos, call.sin, call.qkv_stride = qkv.data_ptr(), cos.data_ptr(), sin.data_ptr(), _stride(qkv)
    call.table_rows = _at(table_rows)
    call.num_heads, call.eps = num_heads, eps
    if norms is not None:
        call.q_norm, call.k_norm = norms[0].data_ptr(), norms[1].data_ptr()
    team.library.kvell_rotate_and_store(team.handle, ctypes.byref(call))


def store(team: Team, keys: Tensor, values: Tensor, slots: Tensor, cache: CacheLayer) -> None:
    """keys and values (T, Hkv, D), already turned, to the cache, rounded to its type (nearest, ties to even)."""
    for part in (keys, values):
        assert part.dtype == torch.float32, part.dtype
        assert part[0].is_contiguous(), part.stride()
    call = _cache_call(cache, slots)
    assert keys.shape[1:] == values.shape[1:] == (call.num_kv_heads, call.head_dim), (keys.shape, values.shape)
    team.library.kvell_store(
        team.handle, ctypes.byref(call), keys.data_ptr(), keys.stride(0), values.data_ptr(), values.stride(0)
    )


def activate(
    team: Team,
    gate_up: Tensor,
    activation: Literal["silu", "gelu_tanh"],
    *,
    out: Tensor | None = None,
    blocks: Tensor | None = None,
) -> None:
    """gate_up (T, 2 I) -> act(gate) * up (T, I) to out, to blocks, or to both."""
    call = GateCall(
        gate_up=gate_up.data_ptr(),
        out=_at(out),
        blocks=_at(blocks),
        num_tokens=gate_up.shape[0],
        gate_up_stride=_stride(gate_up),
        out_stride=0 if out is None else _stride(out),
        columns=gate_up.shape[1] // 2,
        activation=_ACTIVATIONS[activation],
    )
    team.library.kvell_activate(team.handle, ctypes.byref(call))


def copy_rows(team: Team, x: Tensor, rows: Tensor | None, out: Tensor, *, factor: float = 1.0) -> None:
    """out[t] = x[rows[t]] * factor, rows (L,) int64 or all. Scales an embedding, picks the rows that are wanted."""
    team.library.kvell_copy_rows(
        team.handle, x.data_ptr(), _stride(x), _at(rows), out.shape[0], x.shape[1], factor, out.data_ptr(), _stride(out)
    )


def add_bias(team: Team, x: Tensor, bias: Tensor) -> None:
    """x (T, C) += bias (C,)."""
    team.library.kvell_add_bias(team.handle, x.data_ptr(), _stride(x), *x.shape, bias.data_ptr())


def finite_rows(team: Team, x: Tensor) -> Tensor:
    """x (T, C) -> (T,) bool: which rows hold only finite numbers."""
    finite = torch.empty(x.shape[0], dtype=torch.bool)
    team.library.kvell_finite_rows(team.handle, x.data_ptr(), _stride(x), *x.shape, finite.data_ptr())
    return finite


def _cache_call(cache: CacheLayer, slots: Tensor) -> RotaryCall:
    keys, values = cache.keys, cache.values
    _expect_contiguous(keys, values, slots)
    assert keys.shape == values.shape, (keys.shape, values.shape)
    assert keys.dtype == values.dtype, (keys.dtype, values.dtype)
    assert (cache.scales is not None) == (keys.dtype == torch.int8)
    assert slots.dtype == torch.int64, slots.dtype
    return RotaryCall(
        slots=slots.data_ptr(),
        keys=keys.data_ptr(),
        values=values.data_ptr(),
        key_scales=None if cache.scales is None else cache.scales[0].data_ptr(),
        value_scales=None if cache.scales is None else cache.scales[1].data_ptr(),
        num_tokens=len(slots),
        num_kv_heads=keys.shape[2],
        head_dim=keys.shape[3],
        stored=STORED[keys.dtype],
    )


def _expect_contiguous(*tensors: Tensor) -> None:
    assert all(tensor.is_contiguous() for tensor in tensors), [tensor.stride() for tensor in tensors]


def _at(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _stride(x: Tensor) -> int:
    assert x.dtype == torch.float32, x.dtype
    assert x[0].is_contiguous(), x.stride()
    return x.stride(0)
