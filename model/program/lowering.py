"""A recorded step -> the C records of csrc/program.h, over memory that is allocated here.

T tokens, C columns. Knows layouts and addresses; knows no chunks.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.attention.backend import KVStore
from model.config import ModelConfig
from model.kernels.ops import STORED
from model.program import records
from model.program.placement import ALIGNMENT, Span, place
from model.program.recording import (
    Action,
    Add,
    Attend,
    Bias,
    Buffer,
    Check,
    Gate,
    Gather,
    Matmul,
    Norm,
    Quantize,
    Recorded,
    Rotate,
    Scale,
    Take,
    Value,
    Write,
)
from model.program.records import BufferRecord, Operand, OpRecord, RopeRecord, Spec, ViewRecord
from model.program.ropes import RopeTable
from model.program.sections import Section
from model.quant.packed import PackedWeight
from model.quant.weight import Weight

Kind = tuple[int, int | None]  # KV group and window

NOTHING = Operand(-1, 0, 0)
BLOCK_COLUMNS, BLOCK_BYTES = 32, 48


@dataclass(slots=True)
class Lowered:
    """The specification, and everything that it points to. kinds: the views' KV groups and windows, in order."""

    spec: Spec
    kinds: tuple[Kind, ...]
    ropes: tuple[RopeTable, ...]
    vocab_size: int
    held: list[object] = field(repr=False)


def lower(sections: Sequence[Section], kv: KVStore, config: ModelConfig, *, max_tokens: int, max_len: int) -> Lowered:
    """max_tokens: T at most; max_len: positions at most. The last operation is the head."""
    return _Lowering(sections, kv, config, max_tokens, max_len).lowered()


class _Lowering:
    def __init__(
        self, sections: Sequence[Section], kv: KVStore, config: ModelConfig, max_tokens: int, max_len: int
    ) -> None:
        self._sections = sections
        self._kv = kv
        self._config = config
        self._max_tokens = max_tokens
        layers = range(config.num_layers)
        self._kinds = tuple(dict.fromkeys((kv.group_of(layer), config.window(layer)) for layer in layers))
        ops = [op for section in sections for op in section.ops]
        rotaries = dict.fromkeys(id(op.action.rotary) for op in ops if isinstance(op.action, Rotate))
        by_id = {id(op.action.rotary): op.action.rotary for op in ops if isinstance(op.action, Rotate)}
        self._rotary_ids = {rotary: index for index, rotary in enumerate(rotaries)}
        self._ropes = tuple(RopeTable(by_id[rotary], max_len) for rotary in rotaries)
        outputs = [op.out.buffer for op in ops if op.out is not None]
        self._buffers = {buffer: index for index, buffer in enumerate(outputs)}
        last = ops[-1].out
        assert last is not None
        self._logits = last.buffer
        self._held: list[object] = [kv, *self._ropes]

    def lowered(self) -> Lowered:
        lifetimes = self._spans()
        offsets, arena_bytes = place(list(lifetimes.values()))
        placed = dict(zip(lifetimes, offsets, strict=True)) | {self._logits: records.LOGITS}
        buffers = [BufferRecord(placed[b], b.columns, records.ROWS[b.rows], int(b.blocks), 0) for b in self._buffers]
        ops = [self._op(op, index) for index, section in enumerate(self._sections) for op in section.ops]
        views = [self._view(kind) for kind in self._kinds]
        ropes = [RopeRecord(t.cosines.ctypes.data, t.sines.ctypes.data, *t.cosines.shape, 0) for t in self._ropes]
        arena = _aligned_bytes(arena_bytes)
        arrays = (
            _array(OpRecord, ops),
            _array(BufferRecord, buffers),
            _array(ViewRecord, views),
            _array(RopeRecord, ropes),
        )
        self._held += [arena, *arrays]
        counts = len(ops), len(buffers), len(views), len(ropes)
        spec = Spec(
            records.VERSION,
            ctypes.sizeof(OpRecord),
            *counts,
            *arrays,
            arena.ctypes.data,
            arena_bytes,
            self._max_tokens,
        )
        return Lowered(spec, self._kinds, self._ropes, self._logits.columns, self._held)

    def _spans(self) -> dict[Buffer, Span]:
        """When, in sections, each buffer is in use. Threads are at different operations of a section at one time."""
        first: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for moment, section in enumerate(self._sections):
            for op in section.ops:
                for value in (*op.inputs, op.out):
                    if value is not None and value.buffer is not self._logits:
                        first.setdefault(value.buffer, moment)
                        last[value.buffer] = moment
        return {b: Span(_row_bytes(b) * self._max_tokens, first[b], last[b]) for b in first}

    def _view(self, kind: Kind) -> ViewRecord:
        config, kv = self._config, self._kv
        layers = [i for i in range(config.num_layers) if (kv.group_of(i), config.window(i)) == kind]
        num_blocks = min(kv.keys(layer).shape[0] for layer in layers)
        heads = config.num_heads, config.num_kv_heads, config.head_dim
        return ViewRecord(kind[1] or 0, kv.block_size, num_blocks, *heads, 0)

    def _operand(self, value: Value | None) -> Operand:
        if value is None:
            return NOTHING
        return Operand(self._buffers[value.buffer], value.first, value.columns)

    def _op(self, op: Recorded, section: int) -> OpRecord:
        opcode, fields, data = LOWERED[type(op.action)](self, op)
        inputs = [self._operand(value) for value in op.inputs]
        if isinstance(op.action, Matmul) and op.inputs[0].buffer.blocks:
            inputs.insert(0, NOTHING)
        in0, in1 = [*inputs, NOTHING, NOTHING][:2]
        record = OpRecord(opcode, records.VERSION, section, in0=in0, in1=in1, out=self._operand(op.out), **fields)
        for index, address in enumerate(data):
            record.data[index] = address
        return record

    def _floats(self, tensor: Tensor) -> int:
        floats = tensor.detach().to(device="cpu", dtype=torch.float32).contiguous()
        self._held.append(floats)
        return floats.data_ptr()

    def _matrices(self, weight: Weight) -> tuple[dict[str, Any], list[int | None]]:
        assert isinstance(weight, PackedWeight), type(weight)
        self._held.append(weight)
        return {"count": len(weight.matrices)}, [ctypes.addressof(weight.matrices)]

    def _cache(self, layer_id: int) -> tuple[dict[str, Any], list[int | None]]:
        keys, values = self._kv.keys(layer_id), self._kv.values(layer_id)
        kind = self._kv.group_of(layer_id), self._config.window(layer_id)
        fields = {"index": self._kinds.index(kind), "stored": STORED[keys.dtype]}
        scales = self._kv.scales(layer_id) or ()
        return fields, [tensor.data_ptr() for tensor in (keys, values, *scales)]

    def take(self, op: Recorded) -> "Fields":
        assert isinstance(op.action, Take)
        return records.TAKE, *self._matrices(op.action.weight)

    def matmul(self, op: Recorded) -> "Fields":
        assert isinstance(op.action, Matmul)
        assert op.out is not None
        opcode = records.HEAD if op.out.buffer is self._logits else records.MATMUL
        return opcode, *self._matrices(op.action.weight)

    def scale(self, op: Recorded) -> "Fields":
        assert isinstance(op.action, Scale)
        return records.SCALE, {"number": op.action.factor}, []

    def add(self, op: Recorded) -> "Fields":
        return records.ADD, {}, []

    def bias(self, op: Recorded) -> "Fields":
        assert isinstance(op.action, Bias)
        return records.BIAS, {"count": op.action.bias.numel()}, [self._floats(op.action.bias)]

    def norm(self, op: Recorded) -> "Fields":
        assert isinstance(op.action, Norm)
        size = op.action.weight.numel()
        heads = {"heads": op.inputs[0].columns // size, "head_dim": size, "count": size}
        return records.NORM, heads | {"number": op.action.eps}, [self._floats(op.action.weight)]

    def rotate(self, op: Recorded) -> "Fields":
        assert isinstance(op.action, Rotate)
        heads, head_dim = op.inputs[0].inner
        index = self._rotary_ids[id(op.action.rotary)]
        return records.ROTATE, {"heads": heads, "head_dim": head_dim, "index": index}, []

    def gate(self, op: Recorded) -> "Fields":
        assert isinstance(op.action, Gate)
        return records.SILU if op.action.activation == "silu" else records.GELU, {}, []

    def write(self, op: Recorded) -> "Fields":
        assert isinstance(op.action, Write)
        return records.WRITE, *self._cache(op.action.layer_id)

    def attend(self, op: Recorded) -> "Fields":
        assert isinstance(op.action, Attend)
        fields, data = self._cache(op.action.layer_id)
        return records.ATTEND, fields | {"number": op.action.scale}, data

    def gather(self, op: Recorded) -> "Fields":
        return records.GATHER, {}, []

    def check(self, op: Recorded) -> "Fields":
        return records.CHECK, {}, []

    def quantize(self, op: Recorded) -> "Fields":
        return records.QUANTIZE, {}, []


Fields = tuple[int, dict[str, Any], list[int | None]]  # opcode, fields of the record, addresses

LOWERED: dict[type[Action], Callable[[_Lowering, Recorded], Fields]] = {
    Take: _Lowering.take,
    Matmul: _Lowering.matmul,
    Scale: _Lowering.scale,
    Add: _Lowering.add,
    Bias: _Lowering.bias,
    Norm: _Lowering.norm,
    Rotate: _Lowering.rotate,
    Gate: _Lowering.gate,
    Write: _Lowering.write,
    Attend: _Lowering.attend,
    Gather: _Lowering.gather,
    Check: _Lowering.check,
    Quantize: _Lowering.quantize,
}


def _row_bytes(buffer: Buffer) -> int:
    if buffer.blocks:
        return -(-buffer.columns // BLOCK_COLUMNS) * BLOCK_BYTES
    return 4 * buffer.columns


def _array(kind: type[ctypes.Structure], items: Sequence[ctypes.Structure]) -> Any:
    return (kind * len(items))(*items)


def _aligned_bytes(count: int) -> NDArray[np.uint8]:
    raw = np.zeros(count + ALIGNMENT, dtype=np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + count]
