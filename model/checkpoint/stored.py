"""A tensor as it lies in a file: its type's name, its shape, its bytes. No torch.

Knows the storage types of GGUF and safetensors and how each becomes float32; knows no files and no names.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

QUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
FLOATS = ("F32", "F16", "BF16", "F64")

# type -> (values per block, bytes per block); a plain float is a block of one
BLOCKS: dict[str, tuple[int, int]] = {"F64": (1, 8)} | {
    name: GGML_QUANT_SIZES[GGMLQuantizationType[name]] for name in ("F32", "F16", "BF16", *QUANTISED)
}


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor, unread. `data` is usually a view of a memory map and must not be written to.

    type    "F32", "F16", "BF16", "F64", or one of GGUF's quantised types ("Q4_K" ...)
    shape   of the values, outermost first: (out_features, in_features) for a matrix
    data    uint8, (*shape[:-1], bytes per row); moving whole rows moves whole outputs
    add     what has to be added to every value (GGUF stores gemma's norm weights plus one: add is -1)
    """

    type: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    add: float = 0.0


def row_bytes(type_name: str, row_length: int) -> int:
    """Bytes that a row of `row_length` values takes. Raises ValueError when blocks don't divide the row."""
    values, size = BLOCKS[type_name]
    if row_length % values:
        raise ValueError(f"rows of {row_length} values can't be stored in {type_name} blocks of {values}")
    return row_length // values * size


def num_bytes(type_name: str, shape: tuple[int, ...]) -> int:
    """Bytes of a whole tensor; a scalar, shape (), counts as a row of one."""
    total = row_bytes(type_name, shape[-1] if shape else 1)
    for length in shape[:-1]:
        total *= length
    return total


def decode(stored: Stored) -> NDArray[Any]:
    """The values: float32, or float64 where that is stored. (shape) -> new array, or a view when nothing changes.

    The block formats are those of ggml; `gguf.quants` is its authors' own numpy decoder.
    """
    values = _decode_block_types(stored) if stored.type not in FLOATS else _decode_floats(stored)
    values = values.reshape(stored.shape)
    return values + np.asarray(stored.add, values.dtype) if stored.add else values


def _decode_block_types(stored: Stored) -> NDArray[Any]:
    with np.errstate(invalid="ignore", over="ignore"):  # damaged scales give NaN, which is then seen in the logits
        values: NDArray[Any] = dequantize(stored.data, GGMLQuantizationType[stored.type])
    return values


def _decode_floats(stored: Stored) -> NDArray[Any]:
    if stored.type == "BF16":  # the upper half of a float32
        return (stored.data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if stored.type == "F16":
        return stored.data.view("<f2").astype(np.float32)
    return stored.data.view("<f4" if stored.type == "F32" else "<f8")
