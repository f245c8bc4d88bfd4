"""Full-precision matrices rounded to 8 or 4 bits while they load: codes of groups of 32 values that share a scale.

A rounded matrix is a `Stored` in one of GGUF's block types, so native kernels pack its codes as they pack a file's and
torch decodes the very same ones: both compute with one model. No torch here; knows no flags.

R rows, C columns, G groups. Inside, values lie as (32, G): sums over a group are then sums of rows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model.checkpoint.source import Checkpoint
from model.checkpoint.stored import FLOATS, Stored, decode, row_bytes
from model.errors import CheckpointError
from model.families.registry import tensor_name, to_model_config, weight_shapes

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Bits = Literal["int8", "int4"]

GROUP = 32
KINDS: Mapping[Bits, str] = {"int8": "Q8_0", "int4": "Q4_1"}
# What stays at 8 bits where the rest gets 4: every token passes through the ends, and of a layer these two suffer most
# (docs/lab-notes.md has the figures).
WIDER = ("embedding", "head", "v", "down")
_SLAB_VALUES = 1 << 17  # half a megabyte of float32: stays in cache
# Where the search for a 4-bit scale begins: what share of the range to cut off below and above. Each start is refined
# _REFITS times; more of either costs time and gains little (docs/lab-notes.md).
_CUTS = ((0.0, 0.0), (0.07, 0.0), (0.0, 0.07), (0.07, 0.07))
_REFITS = 2


@dataclass(frozen=True, slots=True)
class Rounding:
    """Reads a checkpoint's tensors, those of `kinds` (name -> block type) rounded."""

    checkpoint: Checkpoint
    kinds: Mapping[str, str]
    threads: int

    def stored(self, name: str) -> Stored:
        """As `Checkpoint.stored`; what is rounded is new memory."""
        stored = self.checkpoint.stored(name)
        return round_matrix(stored, self.kinds[name], threads=self.threads) if name in self.kinds else stored


def plan_rounding(checkpoint: Checkpoint, bits: Bits, *, threads: int) -> Rounding:
    """All matrices to `bits`, those of WIDER to 8 bits at least.

    Rows that groups of 32 don't divide stay as they are. Raises CheckpointError where matrices are quantised already:
    rounding twice costs quality and gains little.
    """
    config = to_model_config(checkpoint.config)
    there = set(checkpoint.tensor_names)
    names = [name for name in weight_shapes(config) if name in there and len(checkpoint.shape(name)) == 2]
    already = sorted({checkpoint.stored_type(name) for name in names} - set(FLOATS))
    if already:
        raise CheckpointError(f"{checkpoint.path}: its weights are quantised already ({', '.join(already)})")
    wider = {tensor_name(config, role, layer) for role in WIDER for layer in range(config.num_layers)}
    fits = [name for name in names if checkpoint.shape(name)[1] % GROUP == 0]
    return Rounding(checkpoint, {name: KINDS["int8" if name in wider else bits] for name in fits}, threads)


def quantization_of(checkpoint: Checkpoint) -> str:
    """What the matrices are stored as: "none" for floats only, else GGUF's types, by bytes: "Q4_1+Q8_0"."""
    sizes: Counter[str] = Counter()
    for name in checkpoint.tensor_names:
        if len(checkpoint.shape(name)) == 2:
            sizes[checkpoint.stored_type(name)] += checkpoint.stored_bytes(name)
    types = [kind for kind, _ in sizes.most_common()]
    return "none" if set(types) <= set(FLOATS) else "+".join(types)


def round_matrix(stored: Stored, kind: str, *, threads: int = 1) -> Stored:
    """A matrix of floats (R, C), C a multiple of 32, rounded to `kind`, Q8_0 or Q4_1.

    Some rows at a time, so that beside the result only slabs of float32 exist. Infinities and what is no number make
    their group not finite, so that the first step finds them.
    """
    rows, columns = stored.shape
    blocks = np.empty((rows, row_bytes(kind, columns)), np.uint8)
    step = max(1, _SLAB_VALUES // columns)

    def round_slab(first: int) -> None:
        data = stored.data[first : first + step]
        values = decode(Stored(stored.type, (len(data), columns), data, stored.add)).astype(np.float32, copy=False)
        with np.errstate(all="ignore"):
            blocks[first : first + step] = _ROUND[kind](_grouped(values)).reshape(len(data), -1)

    _all(round_slab, range(0, rows, step), threads)
    return Stored(kind, stored.shape, blocks)


def _all(work: Callable[[int], None], items: Iterable[int], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:  # numpy lets the interpreter go while it computes
        list(pool.map(work, items))


def _grouped(values: Floats) -> Floats:
    """(R, C) -> (32, G)."""
    return np.ascontiguousarray(values.reshape(-1, GROUP).T)


def _to_8_bits(x: Floats) -> Bytes:
    """x (32, G) -> (G, 34) blocks of Q8_0: a half d, then codes -127..127; a value is d * code.

    d = max |x| / 127: a search makes an error of half a percent a fifteenth smaller, which nothing shows.
    """
    scale = (np.abs(x).max(0) / np.float32(127)).astype(np.float16)
    codes = np.clip(np.rint(x * _inverse(scale.astype(np.float32))), -127, 127).astype(np.int8)
    return np.hstack([_as_bytes(scale), codes.T.view(np.uint8)])


def _to_4_bits(x: Floats) -> Bytes:
    """x (32, G) -> (G, 20) blocks of Q4_1: halves d and m, then codes 0..15, two a byte; a value is d * code + m."""
    scale, offset = (part.astype(np.float16) for part in _search(x))
    codes = _codes(x, scale.astype(np.float32), offset.astype(np.float32)).astype(np.uint8)
    pairs = codes[: GROUP // 2] | codes[GROUP // 2 :] << 4  # values 0..15 in the low nibbles
    return np.hstack([_as_bytes(scale), _as_bytes(offset), pairs.T])


_ROUND: Mapping[str, Callable[[Floats], Bytes]] = {"Q8_0": _to_8_bits, "Q4_1": _to_4_bits}


def _search(x: Floats) -> tuple[Floats, Floats]:
    """Scales and offsets (G,) that make the sum of squared errors small.

    From several starts in turn: round, then the line through (code, value) of least squares, and again; the best wins.
    """
    low, width = x.min(0), x.max(0) - x.min(0)
    sums = x.sum(0), np.einsum("ij,ij->j", x, x)
    best: tuple[Floats, Floats, Floats] | None = None
    for below, above in _CUTS:
        scale, offset = width * np.float32((1 - below - above) / 15), low + width * np.float32(below)
        for _ in range(_REFITS):
            scale, offset, error = _refit(x, _codes(x, scale, offset), sums)
        if best is None:
            best = error, scale, offset
        else:
            better = error < best[0]
            best = _pick(better, error, best[0]), _pick(better, scale, best[1]), _pick(better, offset, best[2])
    assert best is not None
    return best[1], best[2]


def _refit(x: Floats, codes: Floats, sums: tuple[Floats, Floats]) -> tuple[Floats, Floats, Floats]:
    """Least squares of value = scale * code + offset, per group: scale, offset, and the error that it leaves."""
    sum_x, sum_xx = sums
    sum_q = codes.sum(0)
    sum_qq, sum_xq = (codes * codes).sum(0), (codes * x).sum(0)
    spread = GROUP * sum_qq - sum_q * sum_q
    scale = np.where(spread > 0, (GROUP * sum_xq - sum_q * sum_x) / spread, np.float32(0))
    offset = (sum_x - scale * sum_q) / np.float32(GROUP)
    return scale, offset, sum_xx - scale * sum_xq - offset * sum_x


def _codes(x: Floats, scale: Floats, offset: Floats) -> Floats:
    """The nearest of 0..15 for each value, as floats."""
    codes = (x - offset) * _inverse(scale)
    np.rint(codes, out=codes)
    return np.clip(codes, 0, 15, out=codes)


def _inverse(scale: Floats) -> Floats:
    """1 / scale, and 0 where a group has no width. (A scale that is no number stays none.)"""
    return np.where(scale == 0, np.float32(0), 1 / scale)


def _pick(where: NDArray[np.bool_], a: Floats, b: Floats) -> Floats:
    return np.where(where, a, b)


def _as_bytes(halves: NDArray[np.float16]) -> NDArray[Any]:
    """(G,) -> (G, 2), little-endian."""
    return halves.astype("<f2").view(np.uint8).reshape(-1, 2)
