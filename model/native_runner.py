"""Chunks in, logits out, by one native call: the fast counterpart of `model.runner`. CPU only.

B chunks, T tokens, L wanted rows, V vocabulary. Knows how a step is laid out for csrc/program.h; knows no requests, no
sampling, no scheduling.
"""

import ctypes
import sys
import weakref
from array import array
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.attention.backend import KVStore
from model.batch import Chunk
from model.decoder import Decoder
from model.kernels.native import Team
from model.program import records
from model.program.lowering import Kind, lower
from model.program.recording import record
from model.program.records import StepRecord
from model.program.sections import quantized, sections
from model.scores import Scores

_ERROR_BYTES = 256
_MOST_KEPT = 1 << 24  # floats: 64 MiB


class _Lender:
    """Memory for logits, lent again once nobody holds what was lent before: fresh pages cost more than the sampler."""

    def __init__(self) -> None:
        self._floats = np.empty(0, dtype=np.float32)

    def take(self, rows: int, columns: int) -> Tensor:
        """(rows, columns), not initialised."""
        count = rows * columns
        if count > _MOST_KEPT:
            return torch.empty(rows, columns, dtype=torch.float32)
        # a tensor, and every view of it, keeps the array that it was made from: then there is a third reference
        if len(self._floats) < count or sys.getrefcount(self._floats) > 2:
            self._floats = np.empty(count, dtype=np.float32)
        return torch.from_numpy(self._floats)[:count].view(rows, columns)


class NativeRunner:
    """A decoder of packed weights as a native program over one cache. One step at a time."""

    def __init__(
        self, decoder: Decoder, kv: KVStore, team: Team, *, max_tokens: int, max_len: int, join: bool = True
    ) -> None:
        """max_tokens in a step, max_len positions of a sequence. join False: no section has more than one operation."""
        self.sections = sections(quantized(record(decoder, kv)), join=join)
        self._program = lower(self.sections, kv, decoder.config, max_tokens=max_tokens, max_len=max_len)
        self._team = team
        self._block_size = kv.block_size
        self._step = StepRecord()
        self._lender = _Lender()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._handle = team.library.kvell_program_create(
            team.handle, ctypes.byref(self._program.spec), error, _ERROR_BYTES
        )
        assert self._handle, error.value.decode()
        weakref.finalize(self, team.library.kvell_program_destroy, self._handle)

    def run(self, chunks: Sequence[Chunk], *, seconds: NDArray[np.float64] | None = None) -> Scores:
        """One step. Writes the chunks' keys and values to the cache.

        chunks: at least one; a sequence occurs at most once, with blocks for all its positions.
        Returns the logits (L, V) float32: the last num_logits positions of each chunk, chunk after chunk.
        seconds (number of sections): what each of them took is added.
        Raises FloatingPointError when a hidden state is not finite, also one whose logits nobody wants.
        """
        tokens, rows, reached, num_rows = array("q"), array("q"), 0, 0
        for chunk in chunks:
            length = len(chunk.tokens)
            tokens.extend(chunk.tokens)
            rows.extend((chunk.start, length, chunk.num_logits))
            num_rows += chunk.num_logits
            reached = max(reached, chunk.start + length)
        for rope in self._program.ropes:
            rope.reach(reached)
        tables = array("i")
        first_blocks = array(
            "q", [self._table(chunk, kind, tables) for kind in self._program.kinds for chunk in chunks]
        )
        logits = self._lender.take(num_rows, self._program.vocab_size)
        step = self._step
        step.num_chunks, step.num_tokens, step.num_tables = len(chunks), len(tokens), len(tables)
        step.chunks, step.tokens = rows.buffer_info()[0], tokens.buffer_info()[0]
        step.first_blocks, step.tables = first_blocks.buffer_info()[0], tables.buffer_info()[0]
        step.logits = logits.data_ptr()
        step.seconds = None if seconds is None else seconds.ctypes.data
        self._raise(self.call(step))
        return Scores.of(logits)

    def call(self, step: StepRecord) -> int:
        """The native call, which lets other threads of the interpreter run; its outcome."""
        outcome: int = self._team.library.kvell_program_run(self._handle, ctypes.byref(step))
        return outcome

    def _table(self, chunk: Chunk, kind: Kind, tables: "array[int]") -> int:
        """Appends the blocks that the chunk reads; returns where its block 0 would be."""
        group, window = kind
        low = 0 if window is None else max(chunk.start - window + 1, 0) // self._block_size
        high = (chunk.start + len(chunk.tokens) - 1) // self._block_size + 1
        first = len(tables) - low
        tables.extend(chunk.tables[group][low:high])
        return first

    def _raise(self, outcome: int) -> None:
        if outcome == records.DONE:
            return
        if outcome == records.NOT_FINITE:
            raise FloatingPointError("hidden states are not finite")
        if outcome == records.NO_MEMORY:
            raise MemoryError("no memory for a step of the native program")
        raise ValueError(self._team.library.kvell_program_error(self._handle).decode())
