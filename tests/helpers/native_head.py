"""Calls the native head (csrc/head.h) by itself, over any weight or over logits of a test's choosing."""

import ctypes
from collections.abc import Sequence
from ctypes import c_int32, c_int64, c_void_p

import numpy as np
import torch
from torch import Tensor

from model.batch import Wish
from model.checkpoint.stored import Stored
from model.kernels.native import Team
from model.program.records import StepRecord
from model.program.results import LogitsMemory, Results
from model.quant.packed import PackedWeight
from model.scores import Scores


class WishRecord(ctypes.Structure):
    """`kvell_wish`."""

    _fields_ = (("num_best", c_int32), ("log_sum", c_int32), ("whole", c_int32))


class HeadCall(ctypes.Structure):
    """`kvell_head`."""

    _fields_ = (
        *((name, c_void_p) for name in ("matrix", "blocks", "x")),
        *((name, c_int64) for name in ("x_stride", "num_rows")),
        *((name, c_void_p) for name in ("wishes", "logits")),
        ("most_best", c_int32),
        *((name, c_void_p) for name in ("counts", "ids", "best", "log_sums", "scratch")),
    )


def score(weight: PackedWeight, x: Tensor, wishes: Sequence[Wish], *, on: Team | None = None) -> Scores:
    """What is wished for of x W^T. x (L, C) float32, weight of one matrix (V, C). on: another team."""
    team = on or weight.team
    results, step = Results(wishes, LogitsMemory(weight.shape[0])), StepRecord()
    results.receive(step)
    records = (WishRecord * len(wishes))(*((w.num_best, w.log_sum, w.whole) for w in wishes))
    blocks = weight._quantized(x) if weight.needs_blocks else None
    call = HeadCall(
        ctypes.addressof(weight.matrices),
        None if blocks is None else blocks.data_ptr(),
        x.data_ptr(),
        x.shape[1],
        len(x),
        ctypes.addressof(records),
        step.logits,
        step.most_best,
        step.counts,
        step.ids,
        step.best,
        step.log_sums,
    )
    scratch = np.full(team.library.kvell_head_scratch_bytes(team.handle, ctypes.byref(call)) + 64, 0x7F, np.uint8)
    call.scratch = scratch.ctypes.data + -scratch.ctypes.data % 64
    team.library.kvell_head_rows(team.handle, ctypes.byref(call))
    return results.scores()


def score_logits(logits: Tensor, wishes: Sequence[Wish], team: Team) -> Scores:
    """What is wished for of these logits (L, V), finite unless L is 1: their products with 0 must be 0."""
    values = np.ascontiguousarray(logits.T.numpy())
    weight = PackedWeight.stacked([Stored("F32", values.shape, values.view(np.uint8))], team)
    return score(weight, torch.eye(len(logits)), wishes)
