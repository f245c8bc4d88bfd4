"""A model without weights that remembers nothing: what it answers depends on every token it reads back from the cache.

Its "keys and values" are a position and a hash chained over all tokens up to there, kept in blocks like the real ones.
Its logits are a hash of everything that the block tables lead to, so one wrong, stale, missing or misplaced block
changes the answer, and a number that is not finite anywhere in a block that is read makes it fail, as in real products.
`solo_logits` computes the same from the tokens alone, without any cache.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.batch import Chunk
from model.sampling import Sampled, SamplingRow
from model.scores import Scores

MASK = (1 << 64) - 1
SEED = 0x243F6A8885A308D3
VOCAB = 13
RAISES = 1001  # a prompt with this token makes the model raise
NOT_FINITE = 1002  # a prompt with this one leaves NaN in the cache, and then makes the model raise
BAD_LOGITS = 1003  # a prompt with this one makes its logits NaN


class FakeFault(RuntimeError):
    """What the model raises for a prompt with the token RAISES."""


def chain(state: int, token: int) -> int:
    """The hash of a token sequence, from that of all but its last token."""
    state = ((state ^ (token + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9) & MASK
    return state ^ (state >> 31)


def logits_of(digests: Sequence[int]) -> Tensor:
    """(VOCAB,) float64 in 0..6 from one digest per KV group."""
    state = SEED
    for digest in digests:
        state = chain(state, digest)
    scrambled = np.array([chain(state, token) for token in range(VOCAB)], dtype=np.uint64)
    return torch.from_numpy((scrambled >> np.uint64(40)).astype(np.float64) * (6 / 2**24))


def digest_of(hashes: NDArray[np.uint64], first: int) -> int:
    """One number from the chained hashes at positions first, first+1, ..."""
    places = np.arange(first, first + len(hashes), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return int((hashes * places).sum(dtype=np.uint64))


def solo_logits(tokens: Sequence[int], windows: Sequence[int | None]) -> Tensor:
    """What the model answers after these tokens, computed without a cache. (VOCAB,)"""
    states = [chain(SEED, tokens[0])]
    for token in tokens[1:]:
        states.append(chain(states[-1], token))
    hashes = np.array(states, dtype=np.uint64)
    firsts = [0 if window is None else max(len(tokens) - window, 0) for window in windows]
    logits = logits_of([digest_of(hashes[first:], first) for first in firsts])
    return torch.full_like(logits, torch.nan) if BAD_LOGITS in tokens else logits


class FakeRunner:
    """Satisfies `server.engine.engine.Runner` over a paged store of its own.

    on_step is called with every batch, before it is run: to advance a fake clock, or to look at what is scheduled.
    """

    def __init__(
        self,
        windows: Sequence[int | None],
        num_blocks: Sequence[int],
        block_size: int,
        *,
        on_step: Callable[[Sequence[Chunk]], None] = lambda chunks: None,
    ) -> None:
        self.windows = tuple(windows)
        self.block_size = block_size
        self.on_step = on_step
        self.positions = [np.full(n * block_size, -1, dtype=np.int64) for n in num_blocks]
        self.hashes = [np.zeros(n * block_size, dtype=np.uint64) for n in num_blocks]
        self.not_finite = [np.zeros(n * block_size, dtype=bool) for n in num_blocks]
        self.bad_logits = [np.zeros(n * block_size, dtype=bool) for n in num_blocks]

    def run(self, chunks: Sequence[Chunk]) -> Scores:
        """Whole logits (L, VOCAB) of the last positions of each chunk that it asks for."""
        self.on_step(chunks)
        for chunk in chunks:
            assert 0 <= chunk.num_logits <= len(chunk.tokens)
            assert len(chunk.tokens) >= 1
            self._write(chunk)
        rows = [
            self._logits(chunk, chunk.start + len(chunk.tokens) - back)
            for chunk in chunks
            if self._is_finite(chunk)
            for back in reversed(range(chunk.num_logits))
        ]
        return Scores.of(torch.stack(rows) if rows else torch.empty(0, VOCAB, dtype=torch.float64))

    def _is_finite(self, chunk: Chunk) -> bool:
        """Whether nothing in the blocks that it reads is NaN; also where a mask lies over it, 0 times NaN is NaN."""
        end = chunk.start + len(chunk.tokens)
        for group, window in enumerate(self.windows):
            slots = self._slots(chunk, group, 0 if window is None else max(end - window, 0), end)
            if self.not_finite[group].reshape(-1, self.block_size)[slots // self.block_size].any():
                raise FloatingPointError("hidden states are not finite")
        return True

    def clear(self, group: int, blocks: Sequence[int]) -> None:
        """What `KVPool.clear` does."""
        for block in blocks:
            here = slice(block * self.block_size, (block + 1) * self.block_size)
            self.positions[group][here], self.hashes[group][here] = -1, 0
            self.not_finite[group][here] = self.bad_logits[group][here] = False

    def _planes(self) -> list[tuple[int, NDArray[np.uint8]]]:
        """All there is of each group, as bytes (num_blocks, bytes per block)."""
        stores = (self.positions, self.hashes, self.not_finite, self.bad_logits)
        return [
            (group, its[group].view(np.uint8).reshape(len(its[group]) // self.block_size, -1))
            for group in range(len(self.windows))
            for its in stores
        ]

    def bytes_of_blocks(self) -> int:
        """What `KVPool.bytes_of_blocks` says."""
        return sum(plane.shape[1] for _, plane in self._planes())

    def export_blocks(self, blocks: Sequence[Sequence[int]]) -> NDArray[np.uint8]:
        """What `KVPool.export_blocks` does."""
        return np.concatenate([plane[list(blocks[group])] for group, plane in self._planes()], axis=1)

    def import_blocks(self, blocks: Sequence[Sequence[int]], data: NDArray[np.uint8]) -> None:
        """What `KVPool.import_blocks` does."""
        assert all(block for ids in blocks for block in ids)
        start = 0
        for group, plane in self._planes():
            plane[list(blocks[group])] = data[:, start : start + plane.shape[1]]
            start += plane.shape[1]

    def _write(self, chunk: Chunk) -> None:
        end = chunk.start + len(chunk.tokens)
        state = SEED
        if chunk.start:
            before = self._slots(chunk, 0, chunk.start - 1, chunk.start)[0]
            assert self.positions[0][before] == chunk.start - 1, f"position {chunk.start - 1} is not where it should be"
            state = int(self.hashes[0][before])
        states = []
        for token in chunk.tokens:
            if token == RAISES:
                raise FakeFault("this token can't be computed")
            state = chain(state, token)
            states.append(state)
        for group in range(len(self.windows)):
            slots = self._slots(chunk, group, chunk.start, end)
            self.positions[group][slots] = np.arange(chunk.start, end)
            self.hashes[group][slots] = states
            self.not_finite[group][slots] = [token == NOT_FINITE for token in chunk.tokens]
            self.bad_logits[group][slots] = [token == BAD_LOGITS for token in chunk.tokens]

    def _logits(self, chunk: Chunk, end: int) -> Tensor:
        """After the positions before `end`."""
        digests, bad = [], False
        for group, window in enumerate(self.windows):
            first = 0 if window is None else max(end - window, 0)
            slots = self._slots(chunk, group, first, end)
            assert (self.positions[group][slots] == np.arange(first, end)).all(), f"group {group} reads a wrong block"
            digests.append(digest_of(self.hashes[group][slots], first))
            bad = bad or bool(self.bad_logits[group][slots].any())
        logits = logits_of(digests)
        return torch.full_like(logits, torch.nan) if bad else logits

    def _slots(self, chunk: Chunk, group: int, first: int, end: int) -> NDArray[np.int64]:
        """Where the table leads for positions first..end-1; the null block is no place to read from or write to."""
        places = np.arange(first, end)
        blocks = np.asarray(chunk.tables[group], dtype=np.int64)[places // self.block_size]
        assert (blocks > 0).all(), f"group {group} has no block for some of {first}..{end - 1}"
        return blocks * self.block_size + places % self.block_size


class QuickSampler:
    """Stands in for `model.sampling.Sampler` where thousands of workloads are played: quicker, and as easily upset.

    With a temperature, its choice depends on seed, choice, position and every token of the row's history.
    """

    def choose(self, scores: Scores, rows: Sequence[SamplingRow]) -> list[Sampled]:
        """One result per row, all whole."""
        return self.sample(scores.logits, rows)

    def sample(self, logits: Tensor, rows: Sequence[SamplingRow]) -> list[Sampled]:
        """One result per row of logits (R, VOCAB)."""
        assert len(logits) == len(rows)
        return [self._sample(values, row) for values, row in zip(logits.tolist(), rows, strict=True)]

    def _sample(self, logits: list[float], row: SamplingRow) -> Sampled:
        params = row.params
        if logits[0] != logits[0]:
            return Sampled(0, failed=True)
        assert row.position == len(row.prompt) + len(row.output)
        banned = params.stop_token_ids if len(row.output) < params.min_tokens else ()
        allowed = [token for token in range(len(logits)) if token not in banned]
        if params.temperature:
            state = chain(chain(chain(SEED, params.seed), params.choice), row.position)
            for token in (*row.prompt, *row.output):
                state = chain(state, token)
            token = allowed[(state >> 20) % len(allowed)]
        else:
            token = max(allowed, key=lambda each: logits[each])
        if params.num_logprobs is None:
            return Sampled(token)
        best = sorted(range(len(logits)), key=lambda each: -logits[each])[: params.num_logprobs]
        return Sampled(token, logits[token], tuple(best), tuple(logits[each] for each in best))
