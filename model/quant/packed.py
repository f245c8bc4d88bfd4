"""Weights as the native kernels like them: codes, scales and offsets of eight rows interleaved (csrc/layout.h).

T tokens, R rows, C columns. Knows how a tensor in a file becomes a packed matrix; knows no families and no files.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoint.stored import QUANTISED, Stored, decode
from model.kernels import native
from model.kernels.native import Matrix, Team
from model.quant.arena import Arena

_FLOAT_KINDS = {"BF16": native.BF16, "F16": native.F16, "F32": native.F32}
_PANEL_ROWS = 8


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeight:
    """One matrix, or several one below the other (their types may differ). Satisfies `model.quant.weight.Weight`.

    matrices  C structs in row order, each with its first_row; `memory` holds what they point to
    """

    team: Team
    shape: tuple[int, int]
    matrices: "ctypes.Array[Matrix]"
    memory: tuple[NDArray[np.uint8], ...] = field(repr=False)

    @classmethod
    def stacked(cls, parts: Sequence[Stored], team: Team, arena: Arena | None = None) -> "PackedWeight":
        """The rows of several stored matrices with the same columns as one weight. No value is rounded again.

        F64 becomes F32. Where types change, or a part ends within eight rows, the next part is a matrix of its own.
        """
        arena = arena or Arena()
        matrices: list[Matrix] = []
        memory = []
        first_row = 0
        for run in _runs(parts):
            matrix = _empty_matrix(run, first_row, team)
            memory.append(_allocate(matrix, team, arena))
            row = 0
            for stored in run:
                _pack(stored, matrix, row, team)
                row += stored.shape[0]
            matrices.append(matrix)
            first_row += matrix.rows
        return cls(team, (first_row, parts[0].shape[1]), (Matrix * len(matrices))(*matrices), tuple(memory))

    @classmethod
    def from_codes(
        cls,
        codes: NDArray[np.uint8] | NDArray[np.int8],
        scales: NDArray[np.float32],
        offsets: NDArray[np.float32] | None = None,
        *,
        kind: int,
        zero: float = 0.0,
        scale_bytes: int = 2,
        team: Team,
        arena: Arena | None = None,
    ) -> "PackedWeight":
        """codes (R, C); scales and offsets (R, C / group), rounded to halves unless scale_bytes is 4.

        kind is a code kind of `model.kernels.native`; zero is the code that stands for 0, where no offsets are given.
        """
        rows, columns = codes.shape
        offset = native.STORED if offsets is not None else native.IMPLIED if zero else native.NO_OFFSET
        group = 32 if scales.shape[1] == -(-columns // 32) else 16
        matrix = Matrix(rows, columns, kind, group, scale_bytes, offset, zero, 0, None)
        memory = _allocate(matrix, team, arena or Arena())
        held = np.ascontiguousarray(codes).view(np.uint8)
        scales = np.ascontiguousarray(scales, np.float32)
        offsets = None if offsets is None else np.ascontiguousarray(offsets, np.float32)
        offsets_at = None if offsets is None else offsets.ctypes.data
        team.library.kvell_pack_codes(team.handle, matrix, 0, rows, held.ctypes.data, scales.ctypes.data, offsets_at)
        return cls(team, (rows, columns), (Matrix * 1)(matrix), (memory,))

    @property
    def num_bytes(self) -> int:
        """What the packed weight takes in memory."""
        return sum(len(part) for part in self.memory)

    @property
    def needs_blocks(self) -> bool:
        """Does any of its matrices hold codes, and so need quantised activations?"""
        return any(matrix.kind < native.BF16 for matrix in self.matrices)

    def matmul(self, x: Tensor) -> Tensor:
        """x (T, C) -> (T, R). The same bits for a row of x whatever the other rows are and however many."""
        wide = x.to(torch.float32).contiguous()
        out = torch.empty(len(wide), self.shape[0], dtype=torch.float32)
        blocks = self._quantized(wide) if self.needs_blocks else None
        self.team.library.kvell_matmul(
            self.team.handle,
            self.matrices,
            len(self.matrices),
            len(wide),
            None if blocks is None else blocks.data_ptr(),
            wide.data_ptr(),
            wide.shape[1],
            out.data_ptr(),
            out.shape[1],
        )
        return out.to(x.dtype)

    def _quantized(self, x: Tensor) -> Tensor:
        num_blocks = -(-x.shape[1] // native.BLOCK_COLUMNS)
        blocks = torch.empty(len(x), num_blocks * native.BLOCK_BYTES, dtype=torch.uint8)
        self.team.library.kvell_quantize(
            self.team.handle, x.data_ptr(), x.shape[1], len(x), x.shape[1], blocks.data_ptr()
        )
        return blocks

    def take(self, rows: Tensor) -> Tensor:
        """rows (T,) int64 -> those rows (T, C) in float32, dequantised."""
        out = torch.empty(len(rows), self.shape[1], dtype=torch.float32)
        for matrix in self.matrices:
            inside = (rows >= matrix.first_row) & (rows < matrix.first_row + matrix.rows)
            ids = rows[inside] - matrix.first_row
            part = out if len(ids) == len(rows) else torch.empty(len(ids), self.shape[1], dtype=torch.float32)
            self.team.library.kvell_take(
                self.team.handle, matrix, ids.data_ptr(), len(ids), part.data_ptr(), self.shape[1]
            )
            if part is not out:
                out[inside] = part
        return out


def _runs(parts: Sequence[Stored]) -> list[list[Stored]]:
    """Parts that can share a matrix: of one type, each but the last a multiple of eight rows."""
    runs: list[list[Stored]] = []
    for stored in parts:
        assert stored.add == 0.0, "only norms are stored with something added"
        whole = bool(runs) and runs[-1][-1].shape[0] % _PANEL_ROWS == 0
        if whole and runs[-1][-1].type == stored.type:
            runs[-1].append(stored)
        else:
            runs.append([stored])
    return runs


def _empty_matrix(run: Sequence[Stored], first_row: int, team: Team) -> Matrix:
    matrix = Matrix(rows=sum(stored.shape[0] for stored in run), columns=run[0].shape[1], first_row=first_row)
    if run[0].type in QUANTISED:
        known = team.library.kvell_gguf_format(GGMLQuantizationType[run[0].type].value, matrix)
        assert known, run[0].type
    else:
        matrix.kind = _FLOAT_KINDS.get(run[0].type, native.F32)
    return matrix


def _allocate(matrix: Matrix, team: Team, arena: Arena) -> NDArray[np.uint8]:
    memory = arena.take(team.library.kvell_matrix_bytes(matrix))
    matrix.data = memory.ctypes.data
    return memory


def _pack(stored: Stored, matrix: Matrix, row: int, team: Team) -> None:
    """The rows of one stored tensor, from `row` on."""
    if stored.type == "F64":
        stored = Stored("F32", stored.shape, decode(stored).astype(np.float32).view(np.uint8))
    data = np.ascontiguousarray(stored.data)
    library, rows = team.library, stored.shape[0]
    if stored.type in QUANTISED:
        type_id = GGMLQuantizationType[stored.type].value
        library.kvell_pack_gguf(team.handle, matrix, row, rows, type_id, data.ctypes.data)
    else:
        library.kvell_pack_values(team.handle, matrix, row, rows, data.ctypes.data)
