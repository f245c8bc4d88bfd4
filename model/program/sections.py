"""From what was recorded to what is run: quantised activations put in, row-wise operations joined to sections.

In a section a thread takes some rows through several operations before it turns to the next rows: the sum of the
residual, its norm and its quantisation become one pass over memory and one meeting of the threads, and so do norms of
heads, rope and the write to the cache, or a gate and its quantisation. Each row goes through the same operations in the
same order as without sections, so the bits are the same. Knows no memory and no C.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from model.kernels import native
from model.program.recording import Attend, Buffer, Gather, Matmul, Quantize, Recorded, Take, Value
from model.quant.packed import PackedWeight

WHOLE = (Take, Matmul, Attend)  # these share out their work by themselves


@dataclass(frozen=True, slots=True)
class Section:
    """Operations that are run together: row-wise ones over the same rows, or a single other."""

    ops: tuple[Recorded, ...]

    @property
    def name(self) -> str:
        """For people: "add norm quantize 576", the kinds of its operations and the columns of the first output."""
        kinds = " ".join(type(op.action).__name__.lower() for op in self.ops)
        first = self.ops[0]
        return f"{kinds} {(first.out or first.inputs[0]).columns}"


def quantized(ops: Sequence[Recorded]) -> list[Recorded]:
    """Every product's inputs as its weight needs them: floats, blocks of codes, or both. Blocks are made once."""
    blocks: dict[Buffer, Value] = {}
    out: list[Recorded] = []
    for op in ops:
        if not isinstance(op.action, Matmul):
            out.append(op)
            continue
        weight, x = op.action.weight, op.inputs[0]
        assert isinstance(weight, PackedWeight), type(weight)
        inputs = (x,) if _needs_floats(weight) else ()
        if weight.needs_blocks:
            if x.buffer not in blocks:
                blocks[x.buffer] = replace(x, buffer=Buffer(x.buffer.rows, x.columns, blocks=True), first=0)
                out.append(Recorded(Quantize(), (x,), blocks[x.buffer]))
            inputs = (*inputs, blocks[x.buffer])
        out.append(replace(op, inputs=inputs))
    return out


def sections(ops: Sequence[Recorded], *, join: bool = True) -> list[Section]:
    """All operations, in order. join False: each is a section of its own."""
    done: list[Section] = []
    for op in ops:
        if join and done and _fits(op, done[-1]):
            done[-1] = Section((*done[-1].ops, op))
        else:
            done.append(Section((op,)))
    return done


def _fits(op: Recorded, section: Section) -> bool:
    before = section.ops[-1]
    if isinstance(op.action, (*WHOLE, Gather)) or isinstance(before.action, WHOLE):
        return False
    return _rows(before) == op.inputs[0].buffer.rows


def _rows(op: Recorded) -> str:
    return (op.out or op.inputs[0]).buffer.rows


def _needs_floats(weight: PackedWeight) -> bool:
    return any(matrix.kind >= native.BF16 for matrix in weight.matrices)
