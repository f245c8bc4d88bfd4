"""The decoder's step as a list: runs a `Decoder` once over values that note what is done to them.

T tokens, L wanted rows, C columns, H heads, D head size. Knows the ops of `model.kernels` and what the decoder does
with tensors between them; knows no families, no memory and no native code. `model.program.lowering` makes the list
executable.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from model.attention.backend import KVStore
from model.batch import StepBatch
from model.decoder import Decoder
from model.kernels import gelu_tanh_gate, matmul, rms_norm, rotate, silu_gate, take
from model.kernels.dispatch import take_over
from model.positions import Rotary, turn
from model.quant.weight import Weight

Rows = Literal["tokens", "wanted"]


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """An array that one operation writes: T or L rows of so many columns, floats or quantised blocks."""

    rows: Rows
    columns: int
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class Take:
    """Rows of the embedding."""

    weight: Weight


@dataclass(frozen=True, slots=True)
class Matmul:
    """Product with a weight."""

    weight: Weight


@dataclass(frozen=True, slots=True)
class Scale:
    """Every number times a factor."""

    factor: float


@dataclass(frozen=True, slots=True)
class Add:
    """The sum of two values."""


@dataclass(frozen=True, slots=True)
class Bias:
    """The same row (C,) added to every row."""

    bias: Tensor


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm over the last axis."""

    weight: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Rotate:
    """Every head turned by its row's position."""

    rotary: Rotary


@dataclass(frozen=True, slots=True)
class Gate:
    """act(gate) * up."""

    activation: Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Write:
    """Keys and values into the cache."""

    layer_id: int


@dataclass(frozen=True, slots=True)
class Attend:
    """Attention over the cache."""

    layer_id: int
    scale: float
    window: int | None


@dataclass(frozen=True, slots=True)
class Gather:
    """The wanted rows."""


@dataclass(frozen=True, slots=True)
class Check:
    """The step fails where a number is not finite."""


@dataclass(frozen=True, slots=True)
class Quantize:
    """Activations as blocks of codes. Not recorded: `model.program.sections` puts it where a weight needs it."""


Action = Take | Matmul | Scale | Add | Bias | Norm | Rotate | Gate | Write | Attend | Gather | Check | Quantize


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """What stands for a tensor: columns first..first+C-1 of a buffer, as (rows, C) or (rows, H, D).

    Has those of a tensor's methods that the decoder uses.
    """

    tape: "Tape"
    buffer: Buffer
    first: int
    inner: tuple[int, ...]

    dtype = torch.float32

    @property
    def columns(self) -> int:
        """C, or H D."""
        return self.inner[0] * (self.inner[1] if len(self.inner) == 2 else 1)

    def reshape(self, rows: int, heads: int, head_dim: int) -> "Value":
        """(rows, C) -> (rows, H, D); rows is -1."""
        assert (rows, self.inner) == (-1, (heads * head_dim,)), (rows, heads, head_dim, self.inner)
        return replace(self, inner=(heads, head_dim))

    def flatten(self, start_dim: int) -> "Value":
        """(rows, H, D) -> (rows, H D)."""
        assert start_dim == 1, start_dim
        return replace(self, inner=(self.columns,))

    def split_with_sizes(self, sizes: Sequence[int], dim: int) -> "tuple[Value, ...]":
        """Along the axis after the rows."""
        assert (dim, sum(sizes)) == (1, self.inner[0]), (dim, sizes, self.inner)
        width = self.columns // self.inner[0]
        starts = [sum(sizes[:i]) * width for i in range(len(sizes))]
        return tuple(
            replace(self, first=self.first + start, inner=(size, *self.inner[1:]))
            for start, size in zip(starts, sizes, strict=True)
        )

    def chunk(self, count: int, dim: int) -> "tuple[Value, ...]":
        """Equal parts of the columns."""
        assert (dim, len(self.inner), self.columns % count) == (-1, 1, 0), (count, dim, self.inner)
        return self.split_with_sizes([self.columns // count] * count, 1)

    def to(self, dtype: torch.dtype) -> "Value":
        """Everything between kernels is float32."""
        assert dtype == torch.float32, dtype
        return self

    def __add__(self, other: "Value | Tensor") -> "Value":
        if isinstance(other, Tensor):
            return self.tape.record(Bias(other), self)
        return self.tape.record(Add(), self, other)

    def __mul__(self, factor: Tensor) -> "Value":
        assert factor.dim() == 0, factor.shape
        return self.tape.record(Scale(float(factor)), self)

    def __getitem__(self, rows: "Given") -> "Value":
        assert (rows.name, self.buffer.rows) == ("rows", "tokens"), rows
        return self.tape.record(Gather(), self, rows="wanted")


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor of the `StepBatch`, known only when the step is."""

    tape: "Tape"
    name: Literal["tokens", "positions", "rows"]


@dataclass(frozen=True, slots=True)
class Angles:
    """Cosines or sines of the step's positions."""

    rotary: Rotary


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """One operation. out is None where it only has an effect."""

    action: Action
    inputs: tuple[Value, ...]
    out: Value | None


@dataclass(slots=True)
class Tape:
    """The operations so far. Satisfies `model.attention.backend.AttentionBackend`."""

    ops: list[Recorded] = field(default_factory=list)

    padded = False

    def record(self, action: Action, *inputs: Value, columns: int | None = None, rows: Rows | None = None) -> Value:
        """Note it down. The output is shaped as the first input unless columns or rows say otherwise."""
        inner = inputs[0].inner if columns is None else (columns,)
        width = inputs[0].columns if columns is None else columns
        buffer = Buffer(rows or inputs[0].buffer.rows, width)
        out = Value(self, buffer, 0, inner)
        self.ops.append(Recorded(action, inputs, out))
        return out

    def attend(
        self,
        layer_id: int,
        queries: Value,
        keys: Value,
        values: Value,
        batch: StepBatch,
        kv: KVStore,
        *,
        scale: float,
        window: int | None,
    ) -> Value:
        """As a backend does it: first the step's own keys and values are written."""
        self.ops.append(Recorded(Write(layer_id), (keys, values), None))
        return self.record(Attend(layer_id, scale, window), queries)


def record(decoder: Decoder, kv: KVStore) -> list[Recorded]:
    """All that `ModelRunner.run` does between packing and logits; the last one's output is the logits."""
    tape = Tape()
    tokens, positions, rows = Given(tape, "tokens"), Given(tape, "positions"), Given(tape, "rows")
    batch = StepBatch(cast(Tensor, tokens), cast(Tensor, positions), cast(Tensor, rows), views={})
    hidden = cast(Value, decoder.hidden(batch, kv, cast(Any, tape)))
    tape.ops.append(Recorded(Check(), (hidden,), None))
    decoder.logits(cast(Tensor, hidden[rows]))
    return tape.ops


def _take(rows: Given, weight: Weight) -> Value:
    out = Value(rows.tape, Buffer("tokens", weight.shape[1]), 0, (weight.shape[1],))
    rows.tape.ops.append(Recorded(Take(weight), (), out))
    return out


def _matmul(x: Value, weight: Weight) -> Value:
    assert x.columns == weight.shape[1], (x.columns, weight.shape)
    return x.tape.record(Matmul(weight), x, columns=weight.shape[0])


def _rms_norm(x: Value, weight: Tensor, eps: float) -> Value:
    assert weight.shape == x.inner[-1:], (weight.shape, x.inner)
    return x.tape.record(Norm(weight, eps), x)


def _turn(positions: Given, rotary: Rotary, dtype: torch.dtype) -> tuple[Angles, Angles]:
    return Angles(rotary), Angles(rotary)


def _rotate(x: Value, cos: Angles, sin: Angles) -> Value:
    assert cos.rotary is sin.rotary
    return x.tape.record(Rotate(cos.rotary), x)


def _silu_gate(gate: Value, up: Value) -> Value:
    return gate.tape.record(Gate("silu"), gate, up)


def _gelu_tanh_gate(gate: Value, up: Value) -> Value:
    return gate.tape.record(Gate("gelu_tanh"), gate, up)


take_over(take, Given, _take)
take_over(turn, Given, _turn)
for _op, _instead in (
    (matmul, _matmul),
    (rms_norm, _rms_norm),
    (rotate, _rotate),
    (silu_gate, _silu_gate),
    (gelu_tanh_gate, _gelu_tanh_gate),
):
    take_over(_op, Value, _instead)
