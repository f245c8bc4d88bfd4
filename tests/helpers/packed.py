"""Random stored tensors of every type, teams of every kind, and what a product with quantised activations should be."""

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoint.stored import FLOATS, QUANTISED, Stored, row_bytes
from model.kernels.native import ISA_NAMES, NativeUnavailable, Team, load_library

# Where a block's half-precision numbers lie: everything else may hold any bits.
_HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)}
TYPES = (*QUANTISED, *(name for name in FLOATS if name != "F64"))


def make_team(threads: int = 1, isa: str | None = None) -> Team:
    """Skips the test where the library was not built or the processor lacks the instruction set."""
    try:
        return Team(threads, isa=isa)
    except NativeUnavailable as reason:
        pytest.skip(str(reason))


def other_isas() -> list[str]:
    """What this machine can run beside plain C."""
    try:
        library = load_library()
    except NativeUnavailable:
        return []
    return [name for isa, name in enumerate(ISA_NAMES) if isa and library.kvell_has_isa(isa)]


def random_stored(type_name: str, rows: int, columns: int, *, seed: int = 0) -> Stored:
    """Any bits, but scales of middling size."""
    random = np.random.default_rng(seed)
    if type_name in FLOATS:
        values = random.standard_normal((rows, columns)).astype(np.float32)
        if type_name == "BF16":
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        dtype = {"F16": np.float16, "F64": np.float64}.get(type_name, values.dtype)
        return Stored(type_name, (rows, columns), values.astype(dtype).view(np.uint8))
    size, block = GGML_QUANT_SIZES[GGMLQuantizationType[type_name]]
    data = random.integers(0, 256, (rows * columns // size, block), np.uint8)
    default = (0, 2) if type_name[-1] == "1" or "K" in type_name else (0,)
    for at in _HALVES.get(type_name, default):
        data[:, at + 1] = data[:, at + 1] & 0x83 | 0x20  # an exponent of 2^-7
    return Stored(type_name, (rows, columns), data.reshape(rows, row_bytes(type_name, columns)))


def quantized(x: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(T, C) float32 -> what the int8 blocks of 32 stand for, and each element's step; both (T, C) float64.

    The formula of csrc/kvell.h in numpy, rounding in float32 where that does.
    """
    values = x.numpy().astype(np.float32)
    padded = np.zeros((len(values), -(-values.shape[1] // 32) * 32), np.float32)
    padded[:, : values.shape[1]] = values
    blocks = padded.reshape(len(values), -1, 32)
    largest = np.abs(blocks).max(-1, keepdims=True)
    largest[largest < 2.0**-100] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.rint(blocks * (np.float32(127) / largest))
    codes[np.broadcast_to(largest == 0, codes.shape)] = 0
    step = np.broadcast_to(largest / np.float32(127), blocks.shape).astype(np.float64)
    exact = codes.astype(np.float64) * step
    return exact.reshape(padded.shape)[:, : values.shape[1]], step.reshape(padded.shape)[:, : values.shape[1]]


def bits(x: Tensor) -> Tensor:
    """float32 as integers, so that equal means the same bits."""
    return x.contiguous().view(torch.int32)
