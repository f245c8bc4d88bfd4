"""Chunks in, scores out, by one native call: the fast counterpart of `model.runner`. CPU only.

B chunks, T tokens. Knows how a step is laid out for csrc/program.h; knows no requests, no
sampling, no scheduling.
"""

import ctypes
import weakref
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.attention.backend import KVStore
from model.batch import Chunk, Wish
from model.decoder import Decoder
from model.kernels.native import Team
from model.program import records
from model.program.lowering import Kind, lower
from model.program.recording import record
from model.program.records import StepRecord
from model.program.results import LogitsMemory, Results
from model.program.sections import quantized, sections
from model.scores import Scores

_ERROR_BYTES = 256


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
        self._memory = LogitsMemory(self._program.vocab_size)
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._handle = team.library.kvell_program_create(
            team.handle, ctypes.byref(self._program.spec), error, _ERROR_BYTES
        )
        assert self._handle, error.value.decode()
        weakref.finalize(self, team.library.kvell_program_destroy, self._handle)

    def run(self, chunks: Sequence[Chunk], *, seconds: NDArray[np.float64] | None = None) -> Scores:
        """One step. Writes the chunks' keys and values to the cache.

        chunks: at least one; a sequence occurs at most once, with blocks for all its positions.
        Returns scores of the last num_logits positions of each chunk, chunk after chunk, as wished for: logits only of
        those that are wanted whole.
        seconds (number of sections): what each of them took is added.
        Raises FloatingPointError when a hidden state is not finite, also one whose logits nobody wants.
        """
        tokens, numbers, reached = array("q"), array("q"), 0
        wishes: list[Wish] = []
        for chunk in chunks:
            length, wish = len(chunk.tokens), chunk.wish
            tokens.extend(chunk.tokens)
            numbers.extend((chunk.start, length, chunk.num_logits, wish.whole, wish.num_best, wish.log_sum))
            wishes += [wish] * chunk.num_logits
            reached = max(reached, chunk.start + length)
        for rope in self._program.ropes:
            rope.reach(reached)
        tables = array("i")
        first_blocks = array(
            "q", [self._table(chunk, kind, tables) for kind in self._program.kinds for chunk in chunks]
        )
        step, results = self._step, Results(wishes, self._memory)
        step.num_chunks, step.num_tokens, step.num_tables = len(chunks), len(tokens), len(tables)
        step.chunks, step.tokens = numbers.buffer_info()[0], tokens.buffer_info()[0]
        step.first_blocks, step.tables = first_blocks.buffer_info()[0], tables.buffer_info()[0]
        results.receive(step)
        step.seconds = None if seconds is None else seconds.ctypes.data
        self._raise(self.call(step))
        return results.scores()

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
