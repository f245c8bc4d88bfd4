"""Memory that one step of the native program writes its results to, and what they say afterwards.

L wanted rows, F of them whole, V vocabulary, K entries kept of a row.
"""

import sys
from array import array
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from model.batch import Wish
from model.program.records import StepRecord
from model.scores import Scores, Summary

_MOST_KEPT = 1 << 24  # floats: 64 MiB


class LogitsMemory:
    """Memory for logits, lent again once nobody holds what was lent before: fresh pages cost more than the sampler."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._floats = np.empty(0, dtype=np.float32)
        self._nothing = torch.empty(0, vocab)

    def take(self, rows: int) -> Tensor:
        """(rows, V), not initialised."""
        if not rows:
            return self._nothing
        count = rows * self._vocab
        if count > _MOST_KEPT:
            return torch.empty(rows, self._vocab, dtype=torch.float32)
        # a tensor, and every view of it, keeps the array that it was made from: then there is a third reference
        if len(self._floats) < count or sys.getrefcount(self._floats) > 2:
            self._floats = np.empty(count, dtype=np.float32)
        return torch.from_numpy(self._floats)[:count].view(rows, self._vocab)


class Results:
    """One step's results. wishes: one for each wanted row. Where none is wanted whole, torch is not called at all."""

    def __init__(self, wishes: Sequence[Wish], memory: LogitsMemory) -> None:
        count = len(wishes)
        self._wishes = wishes
        self._most = most = max([wish.num_best for wish in wishes], default=0)
        self._num_whole = sum([wish.whole for wish in wishes])
        self._counts, self._log_sums = array("i", bytes(4 * count)), array("d", bytes(8 * count))
        self._ids, self._best = array("i", bytes(4 * count * most)), array("f", bytes(4 * count * most))
        self._logits = memory.take(self._num_whole)

    def receive(self, step: StepRecord) -> None:
        """The step is to write here."""
        step.logits, step.most_best = self._logits.data_ptr() if self._num_whole else None, self._most
        step.counts, step.log_sums = self._counts.buffer_info()[0], self._log_sums.buffer_info()[0]
        step.ids, step.best = self._ids.buffer_info()[0], self._best.buffer_info()[0]

    def scores(self) -> Scores:
        """What was written."""
        summaries = [self._summary(row, wish) for row, wish in enumerate(self._wishes)]
        if not self._num_whole:
            return Scores(self._logits, [None] * len(summaries), summaries)
        numbers = iter(range(self._num_whole))
        return Scores(self._logits, [next(numbers) if wish.whole else None for wish in self._wishes], summaries)

    def _summary(self, row: int, wish: Wish) -> Summary | None:
        if not wish.num_best:
            return None
        first = row * self._most
        last = first + self._counts[row]
        return Summary(tuple(self._ids[first:last]), tuple(self._best[first:last]), self._log_sums[row])
