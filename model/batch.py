"""What one step runs: `Chunk`s in, packed tensors out.

T tokens in the step, B chunks, S blocks in the longest table, L rows that need logits.
Knows positions and block tables; knows no requests and no scheduling.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive tokens of one sequence, to be run in this step.

    A piece of a prompt, one decode token and k+1 drafted tokens are all chunks.

    tokens      the ids to run, at least one
    start       absolute position of tokens[0]; keys and values of 0..start-1 are in the cache already
    tables      one block table per KV group; tables[g][i] holds positions i*block_size.. of group g.
                Entries of a windowed group that have left the window are 0, the null block.
    num_logits  how many of the chunk's last positions need logits: 0 none, 1 the last, len(tokens) all
    """

    tokens: Sequence[int]
    start: int
    tables: tuple[Sequence[int], ...]
    num_logits: int
