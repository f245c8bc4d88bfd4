"""What the engine needs of `model`: something that computes, and something that chooses."""

from collections.abc import Sequence
from typing import Protocol

from model.batch import Chunk
from model.sampling import Sampled, SamplingRow
from model.scores import Scores


class Runner(Protocol):
    """The model over the paged cache."""

    def run(self, chunks: Sequence[Chunk]) -> Scores:
        """Scores of the positions that the chunks ask for, in chunk order. Repeatable: it rewrites its slots."""
        ...


class Chooser(Protocol):
    """What chooses tokens; `model.sampling.Sampler`."""

    def choose(self, scores: Scores, rows: Sequence[SamplingRow]) -> list[Sampled]:
        """One result per row. Repeatable."""
        ...
