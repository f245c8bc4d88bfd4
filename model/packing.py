"""Chunks -> StepBatch: one transfer of a few small arrays per step, nothing per layer.

Chunks of one token are put side by side in padded block tables, so that a layer needs one set of operations for all of
them; they are sorted by length and split where the longest would make the others read more than twice what they need.
Longer chunks attend one by one. A windowed layer reads only the blocks that its window touches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from model.batch import BlockTables, CacheView, Chunk, Piece, StepBatch

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs for one decoder and one cache.

    kinds   the (KV group, window) pairs that the decoder's layers come in
    dtype   of the masks: the type that scores are computed in
    padded  whether the attention backend reads pieces and masks; if not, it reads block tables
    """

    kinds: tuple[tuple[int, int | None], ...]
    block_size: int
    dtype: torch.dtype
    device: torch.device
    padded: bool = True

    def pack(self, chunks: Sequence[Chunk]) -> StepBatch:
        """At least one chunk, each with at least one token and with blocks for all its positions."""
        assert chunks, "nothing to run"
        groups = _pieces(chunks, self.block_size)
        order = [chunk_id for group in groups for chunk_id in group]
        packed = [chunks[chunk_id] for chunk_id in order]
        views = {kind: self._view(kind, [[chunks[i] for i in group] for group in groups]) for kind in self.kinds}
        return StepBatch(
            tokens=self._put(np.concatenate([np.asarray(chunk.tokens, dtype=np.int64) for chunk in packed])),
            positions=self._put(np.concatenate([_positions(chunk) for chunk in packed])),
            rows=self._put(_logit_rows(chunks, order)),
            views=views,
        )

    def _view(self, kind: tuple[int, int | None], groups: Sequence[Sequence[Chunk]]) -> CacheView:
        group_id, window = kind
        pieces, first = [], 0
        for group in groups if self.padded else ():
            pieces.append(self._piece(group, first, group_id, window))
            first += sum(len(chunk.tokens) for chunk in group)
        chunks = [chunk for group in groups for chunk in group]
        slots = np.concatenate([self._slots(chunk, group_id) for chunk in chunks])
        return CacheView(self._put(slots), tuple(pieces), self._tables(chunks, group_id, window))

    def _tables(self, chunks: Sequence[Chunk], group_id: int, window: int | None) -> BlockTables:
        size = self.block_size
        rows, row = [], 0
        blocks: list[int] = []
        for chunk in chunks:
            num_tokens = len(chunk.tokens)
            low = 0 if window is None else max(chunk.start - window + 1, 0) // size
            high = (chunk.start + num_tokens - 1) // size + 1
            rows.append((row, chunk.start, num_tokens, len(blocks) - low))
            blocks += chunk.tables[group_id][low:high]
            row += num_tokens
        return BlockTables(np.array(rows, dtype=np.int64), np.array(blocks, dtype=np.int32))

    def _slots(self, chunk: Chunk, group_id: int) -> Ints:
        positions = _positions(chunk)
        lo, hi = chunk.start // self.block_size, int(positions[-1]) // self.block_size + 1
        blocks = np.asarray(chunk.tables[group_id][lo:hi], dtype=np.int64)
        return blocks[positions // self.block_size - lo] * self.block_size + positions % self.block_size

    def _piece(self, group: Sequence[Chunk], first: int, group_id: int, window: int | None) -> Piece:
        size = self.block_size
        starts = np.array([chunk.start for chunk in group])
        queries = starts[:, None] + np.arange(len(group[0].tokens))  # (B, n)
        low = np.zeros_like(starts) if window is None else np.maximum(starts - window + 1, 0) // size
        high = queries[:, -1] // size + 1
        blocks = np.zeros((len(group), int((high - low).max())), dtype=np.int64)
        for row, chunk in enumerate(group):
            blocks[row, : high[row] - low[row]] = chunk.tables[group_id][low[row] : high[row]]
        keys = low[:, None] * size + np.arange(blocks.shape[1] * size)  # (B, N) absolute positions
        visible = keys[:, None, :] <= queries[:, :, None]
        if window is not None:
            visible &= keys[:, None, :] > queries[:, :, None] - window
        return Piece(first, self._put(blocks), self._mask(visible))

    def _mask(self, visible: NDArray[np.bool_]) -> torch.Tensor:
        hidden = torch.from_numpy(~visible).to(self.device)
        return torch.zeros(visible.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, float("-inf"))

    def _put(self, array: Ints) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)


def _positions(chunk: Chunk) -> Ints:
    return np.arange(chunk.start, chunk.start + len(chunk.tokens), dtype=np.int64)


def _pieces(chunks: Sequence[Chunk], block_size: int) -> list[list[int]]:
    """Chunk indices, grouped by piece: the single tokens by length, then every longer chunk for itself."""
    singles = sorted((i for i, chunk in enumerate(chunks) if len(chunk.tokens) == 1), key=lambda i: chunks[i].start)
    groups: list[list[int]] = []
    shortest = 0
    for i in singles:
        num_blocks = chunks[i].start // block_size + 1
        if not groups or num_blocks > max(2 * shortest, 16):
            groups.append([])
            shortest = num_blocks
        groups[-1].append(i)
    return groups + [[i] for i, chunk in enumerate(chunks) if len(chunk.tokens) > 1]


def _logit_rows(chunks: Sequence[Chunk], order: Sequence[int]) -> Ints:
    """Where the wanted rows of each chunk, in the caller's order, lie in the packed order."""
    ends = dict(zip(order, np.cumsum([len(chunks[i].tokens) for i in order]), strict=True))
    wanted = [np.arange(ends[i] - chunk.num_logits, ends[i], dtype=np.int64) for i, chunk in enumerate(chunks)]
    return np.concatenate(wanted)
