"""Tensors out of a checkpoint, into memory and the model's number format. The one file of this room that uses torch."""

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from model.checkpoint.match import check_names
from model.checkpoint.source import Checkpoint
from model.checkpoint.stored import QUANTISED, Stored, decode

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_SLAB_VALUES = 1 << 17  # half a megabyte of float32: stays in cache

Progress = Callable[[int, int], None]
Read = Callable[[str], Stored]


def load_weights(
    checkpoint: Checkpoint,
    wanted: Mapping[str, tuple[int, ...]],
    *,
    ignore: Iterable[str] = (),
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    on_progress: Progress | None = None,
    read: Read | None = None,
) -> dict[str, Tensor]:
    """The wanted tensors by name, as `dtype` on `device`. Peak memory is the result plus one tensor.

    wanted       name -> shape; the checkpoint must hold exactly these, or CheckpointError says what not
    ignore       regular expressions of stored names to leave alone
    on_progress  called with (bytes read, bytes in all), as stored, after each tensor
    read         gives a tensor by name; None: as it is stored
    """
    check_names(checkpoint, wanted, ignore=ignore)
    order = [name for name in checkpoint.tensor_names if name in wanted]  # in file order: one pass over the disk
    total = sum(checkpoint.stored_bytes(name) for name in order)
    weights: dict[str, Tensor] = {}
    done = 0
    for name in order:
        weights[name] = to_tensor((read or checkpoint.stored)(name), dtype=dtype, device=device)
        done += checkpoint.stored_bytes(name)
        if on_progress:
            on_progress(done, total)
    return weights


def to_tensor(stored: Stored, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """A stored tensor's values as a tensor of its own (never a view of the file)."""
    if stored.type in QUANTISED or stored.add:
        return _decoded(stored, dtype).to(device)
    raw = torch.from_numpy(stored.data).view(_DTYPES[stored.type]).reshape(stored.shape)
    return raw.to(device=device, dtype=dtype, copy=True)


def _decoded(stored: Stored, dtype: torch.dtype) -> Tensor:
    """Decode some rows at a time, so that float32 values of the whole tensor never exist beside the result."""
    if len(stored.shape) < 2:
        return torch.from_numpy(decode(stored)).to(dtype)
    values = torch.empty(stored.shape, dtype=dtype)
    num_rows = max(1, _SLAB_VALUES * stored.shape[0] // math.prod(stored.shape))
    for start in range(0, stored.shape[0], num_rows):
        slab = values[start : start + num_rows]
        data = stored.data[start : start + num_rows].reshape(1, -1)  # one row: the decoder goes 16 rows at a time
        slab.copy_(torch.from_numpy(decode(Stored(stored.type, tuple(slab.shape), data, stored.add))))
    return values
