"""What one step runs: `Chunk`s in, packed tensors out (`model.packing` does the packing).

T tokens in the step, B chunks, L rows that need logits, n tokens per chunk of a piece, N cached positions per chunk,
S = N / block_size blocks. Knows positions and block tables; knows no requests and no scheduling. Does not import torch:
who only makes chunks need not pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


MOST_BEST = 64  # that a `Wish` may ask for


@dataclass(frozen=True, slots=True)
class Wish:
    """What must be known of a row of logits (V,).

    whole     all of it; else the following is enough
    num_best  so many of its largest values and their ids, at most MOST_BEST
    log_sum   the logarithm of the sum of its exponentials, which turns logits into log-probabilities
    """

    whole: bool = True
    num_best: int = 0
    log_sum: bool = False


WHOLE = Wish()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive tokens of one sequence, to be run in this step.

    A piece of a prompt, one decode token and k+1 drafted tokens are all chunks.

    tokens      the ids to run, at least one
    start       absolute position of tokens[0]; keys and values of 0..start-1 are in the cache already
    tables      one block table per KV group; tables[g][i] holds positions i*block_size.. of group g.
                Entries of a windowed group that have left the window are 0, the null block.
    num_logits  how many of the chunk's last positions need logits: 0 none, 1 the last, len(tokens) all
    wish        what of these logits
    """

    tokens: Sequence[int]
    start: int
    tables: tuple[Sequence[int], ...]
    num_logits: int
    wish: Wish = WHOLE


@dataclass(frozen=True, slots=True)
class Piece:
    """Chunks that attend together: several of one token each, or a single longer one.

    first   row of the piece's first token among the step's T; its B * n tokens follow one another, chunk by chunk
    blocks  (B, S) the blocks that its chunks read, in position order, padded with the null block
    mask    (B, n, N) added to the scores: 0 where token n of chunk b may look, -inf where it may not
    """

    first: int
    blocks: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class BlockTables:
    """What every chunk reads, without padding: for backends that follow the tables themselves. Always on the host.

    chunks  (B, 4) int64: row of the chunk's first token among the step's T, its absolute position, number of tokens,
            and where its table begins: position p lies in blocks[chunks[b, 3] + p // block_size]. That may begin
            before the array does: blocks that a window has left are not in it.
    blocks  int32
    """

    chunks: NDArray[np.int64]
    blocks: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CacheView:
    """How layers of one KV group and one window see the cache in this step: where they write, what they read.

    slots (T,): block * block_size + position % block_size of each token. pieces are there for backends that ask for
    padded batches, tables for the others.
    """

    slots: Tensor
    pieces: tuple[Piece, ...]
    tables: BlockTables


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The tensors of one step. The order of its T tokens is the packer's affair: single tokens first, by length.

    tokens     (T,) int64
    positions  (T,) int64, absolute
    rows       (L,) int64, which of the T need logits, in the order of the chunks
    views      by (KV group, window)
    """

    tokens: Tensor
    positions: Tensor
    rows: Tensor
    views: Mapping[tuple[int, int | None], CacheView]
