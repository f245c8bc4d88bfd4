"""The C structs of csrc/program.h for ctypes."""

from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p

VERSION = 2
(
    TAKE,
    SCALE,
    ADD,
    BIAS,
    NORM,
    ROTATE,
    WRITE,
    SILU,
    GELU,
    QUANTIZE,
    GATHER,
    CHECK,
    MATMUL,
    ATTEND,
    HEAD,
) = range(15)  # kvell_opcode
ROWS = {"tokens": 0, "wanted": 1}  # kvell_rows
DONE, NOT_FINITE, BAD_STEP, NO_MEMORY = range(4)  # kvell_outcome
LOGITS = -1  # offset of what the head writes, which is not in the arena


class BufferRecord(Structure):
    """`kvell_buffer`."""

    _fields_ = (
        ("offset", c_int64),
        ("columns", c_int32),
        ("rows", c_int32),
        ("blocks", c_int32),
        ("reserved", c_int32),
    )


class Operand(Structure):
    """`kvell_operand`."""

    _fields_ = (("buffer", c_int32), ("column", c_int32), ("columns", c_int32))


class OpRecord(Structure):
    """`kvell_op`."""

    _fields_ = (
        *((name, c_int32) for name in ("opcode", "version", "section", "index")),
        *((name, Operand) for name in ("in0", "in1", "out")),
        *((name, c_int32) for name in ("heads", "head_dim", "count", "stored")),
        ("number", c_float),
        ("data", c_void_p * 4),
    )


class ViewRecord(Structure):
    """`kvell_view`."""

    _fields_ = (
        ("window", c_int32),
        ("block_size", c_int32),
        ("num_blocks", c_int64),
        *((name, c_int32) for name in ("num_heads", "num_kv_heads", "head_dim", "reserved")),
    )


class RopeRecord(Structure):
    """`kvell_rope`."""

    _fields_ = (
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("rows", c_int64),
        ("pairs", c_int32),
        ("reserved", c_int32),
    )


class Spec(Structure):
    """`kvell_program_spec`."""

    _fields_ = (
        ("version", c_int32),
        ("op_bytes", c_int32),
        *((name, c_int64) for name in ("num_ops", "num_buffers", "num_views", "num_ropes")),
        ("ops", POINTER(OpRecord)),
        ("buffers", POINTER(BufferRecord)),
        ("views", POINTER(ViewRecord)),
        ("ropes", POINTER(RopeRecord)),
        ("arena", c_void_p),
        ("arena_bytes", c_int64),
        ("max_tokens", c_int64),
    )


class StepRecord(Structure):
    """`kvell_step`."""

    _fields_ = (
        *((name, c_int64) for name in ("num_chunks", "num_tokens", "num_tables")),
        *((name, c_void_p) for name in ("chunks", "tokens", "first_blocks", "tables", "logits")),
        *((name, c_void_p) for name in ("counts", "ids", "best", "log_sums")),
        ("most_best", c_int64),
        ("seconds", c_void_p),
    )
