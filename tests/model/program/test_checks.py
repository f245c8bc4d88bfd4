"""A program that is not sound is refused in one line, whatever is wrong with it. Never a crash."""

import ctypes
import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from model.program import records
from model.program.lowering import Lowered, lower
from model.program.recording import record
from model.program.records import BufferRecord, OpRecord, Spec
from model.program.sections import quantized, sections
from tests.helpers.native_models import config_of, make_both
from tests.helpers.native_teams import native_team
from tests.helpers.paged import PlainKV


def lowered(name: str = "gemma3", kind: str = "Q8_0") -> Lowered:
    config = config_of(name)
    kv = PlainKV(config, num_blocks=8)
    ops = sections(quantized(record(make_both(config, kind).native, kv)))
    return lower(ops, kv, config, max_tokens=16, max_len=64)


def refusal(spec: Spec) -> str:
    """What the library says; empty when it takes the program."""
    library, error = native_team().library, ctypes.create_string_buffer(256)
    handle = library.kvell_program_create(native_team().handle, ctypes.byref(spec), error, 256)
    if handle:
        library.kvell_program_destroy(handle)
        assert not error.value
        return ""
    assert error.value
    return error.value.decode()


def first(program: Lowered, opcode: int) -> OpRecord:
    spec = program.spec
    op: OpRecord = next(spec.ops[i] for i in range(spec.num_ops) if spec.ops[i].opcode == opcode)
    return op


def buffer_of(program: Lowered, operand: Any) -> BufferRecord:
    buffer: BufferRecord = program.spec.buffers[operand.buffer]
    return buffer


def change(opcode: int, path: str, value: Any) -> Callable[[Lowered], None]:
    """Set a field of the first operation of this kind."""

    def apply(program: Lowered) -> None:
        target: Any = first(program, opcode)
        *parents, last = path.split(".")
        for parent in parents:
            target = getattr(target, parent)
        if last.startswith("data"):
            target.data[int(last[4:])] = value
        else:
            setattr(target, last, value)

    return apply


FAULTS: dict[str, tuple[Callable[[Lowered], None], str]] = {
    "version of an operation": (change(records.ADD, "version", 1), r"\(add\) is of version 1"),
    "no such opcode": (change(records.ADD, "opcode", 99), r"\(unknown\) has opcode 99"),
    "negative opcode": (change(records.ADD, "opcode", -1), "has opcode -1"),
    "no such buffer": (change(records.ADD, "in1.buffer", 10_000), "an operand that is no buffer"),
    "a missing operand": (change(records.ADD, "in1.buffer", -1), "an operand that is no buffer"),
    "an operand too many": (change(records.NORM, "in1.buffer", 0), r"\(norm\) has an operand too many"),
    "columns past the end": (change(records.ROTATE, "in0.column", 10_000), "reaches outside a buffer"),
    "columns before the beginning": (change(records.ROTATE, "in0.column", -1), "reaches outside a buffer"),
    "columns that overflow": (change(records.ADD, "in0.columns", 2**31 - 1), "reaches outside a buffer"),
    "sizes that differ": (change(records.ADD, "in1.columns", 32), "inputs of two sizes"),
    "output of another size": (change(records.GELU, "out.columns", 32), "changes the number of columns"),
    "heads": (change(records.ROTATE, "heads", 3), "heads that don't fill its row"),
    "a rope table that isn't there": (change(records.ROTATE, "index", 2), "names no rope table"),
    "a view that isn't there": (change(records.ATTEND, "index", -1), "names no view"),
    "a cache of unknown type": (change(records.WRITE, "stored", 7), "unknown type of cache"),
    "int8 without scales": (change(records.WRITE, "stored", 2), "lacks the scales of its cache"),
    "no keys": (change(records.WRITE, "data0", None), "lacks its data"),
    "no matrices": (change(records.MATMUL, "data0", None), "lacks its data"),
    "no matrix": (change(records.MATMUL, "count", 0), "has no matrix"),
    "a head of several matrices": (change(records.HEAD, "count", 2), "logits that its matrix does not fill"),
    "a head of a part of the logits": (change(records.HEAD, "out.columns", 8), "logits that its matrix does not fill"),
    "a product that goes to the logits": (change(records.HEAD, "opcode", records.MATMUL), "touches the logits"),
    "a head that goes elsewhere": (change(records.MATMUL, "opcode", records.HEAD), "is a head without logits"),
    "a weight of another size": (change(records.NORM, "count", 3), "a weight of another size"),
    "floats for blocks": (change(records.QUANTIZE, "out.buffer", 0), "mixes floats and blocks"),
    "sections out of order": (change(records.MATMUL, "section", 0), "is out of order|shares a section"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str) -> None:
    program = lowered()
    assert refusal(program.spec) == ""
    apply, words = FAULTS[name]
    apply(program)
    assert re.search(words, refusal(program.spec))


def test_a_matrix_must_fit_its_operands() -> None:
    for field, value, words in (
        ("columns", 32, "a matrix of 32 columns for 64"),
        ("rows", 10_000, "writes outside its output"),
        ("first_row", -8, "writes outside its output"),
        ("kind", 9, "a matrix without data"),
        ("group", 8, "odd groups"),
        ("data", 8, "a matrix without data"),
    ):
        program = lowered()
        op = first(program, records.MATMUL)
        matrix = ctypes.cast(op.data[0], ctypes.POINTER(type(matrices_of(program)[0]))).contents
        before = getattr(matrix, field)
        setattr(matrix, field, value)
        try:
            assert words in refusal(program.spec)
        finally:
            setattr(matrix, field, before)


def matrices_of(program: Lowered) -> Any:
    return next(held.matrices for held in program.held if hasattr(held, "matrices"))


def test_buffers_must_fit_the_arena() -> None:
    program = lowered()
    program.spec.arena_bytes -= 64
    assert "does not fit the arena" in refusal(program.spec)
    program = lowered()
    buffer_of(program, first(program, records.ADD).in0).offset = -2
    assert "does not fit the arena" in refusal(program.spec)
    program = lowered()
    program.spec.max_tokens = 2**40
    assert "does not fit the arena" in refusal(program.spec)


def test_another_version_is_refused() -> None:
    for field, value in (("version", 1), ("op_bytes", 8)):
        program = lowered()
        setattr(program.spec, field, value)
        assert "this library runs 2" in refusal(program.spec)


def test_an_empty_program_is_refused() -> None:
    program = lowered()
    program.spec.num_ops = 0
    assert "empty" in refusal(program.spec)


@pytest.mark.parametrize("seed", range(40))
def test_random_changes_are_refused_or_harmless_to_create(seed: int) -> None:
    """Whatever the bytes of operations and buffers are: an answer, no crash. Pointers are left alone."""
    rng, program = Random(seed), lowered()
    for _ in range(20):
        spec = program.spec
        op = spec.ops[rng.randrange(spec.num_ops)]
        name = rng.choice(["opcode", "section", "index", "heads", "head_dim", "count", "stored", "in0", "in1", "out"])
        value = rng.choice([-1, 0, 1, 2, 3, 7, 16, 64, 2**31 - 1, -(2**31)])
        if name == "count" and op.opcode in (records.MATMUL, records.TAKE):
            continue  # says how long an array is that only its owner can know
        if name in ("in0", "in1", "out"):
            setattr(getattr(op, name), rng.choice(["buffer", "column", "columns"]), value)
        elif name != "opcode" or value in (records.SCALE, records.ADD, records.CHECK, -1):
            setattr(op, name, value)
    assert isinstance(refusal(program.spec), str)
