"""What a step says about the rows that were wanted: logits where they are needed whole, summaries where these will do.

L wanted rows, F of them whole, V vocabulary. Knows no parameters of sampling.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from model.filters import RowWorkspace, total
from model.ranking import largest


class Summary(NamedTuple):
    """The best of a row of logits, and what turns its logits into log-probabilities.

    ids      of its largest logits, best first, ties by lowest id; fewer than wished for if the others are -inf
    logits   theirs; the first is NaN where the row holds one, and +inf where it holds that
    log_sum  logarithm of the sum of the exponentials of all; NaN where the wish was not for it
    """

    ids: tuple[int, ...]
    logits: tuple[float, ...]
    log_sum: float


@dataclass(frozen=True, slots=True)
class Scores:
    """One step's wanted rows.

    logits     (F, V) those that are whole, in order
    places     for each of the L rows which row of `logits` it is; None: only its summary is there
    summaries  for each of the L rows; None: whoever wants one makes it of the row (`summarise`). A backend gives one to
               every row or to no row: a row's log-probabilities are then the same bits whether it is whole or not
    """

    logits: Tensor
    places: Sequence[int | None]
    summaries: Sequence[Summary | None]

    @classmethod
    def of(cls, logits: Tensor) -> "Scores":
        """Every row whole, none with a summary. (L, V)"""
        return cls(logits, range(len(logits)), [None] * len(logits))

    def __len__(self) -> int:
        return len(self.places)

    def pick(self, rows: Sequence[int]) -> "Scores":
        """These rows only."""
        places = [self.places[row] for row in rows]
        whole = [place for place in places if place is not None]
        numbers = iter(range(len(whole)))
        return Scores(
            self.logits[whole],
            [None if place is None else next(numbers) for place in places],
            [self.summaries[row] for row in rows],
        )


def summarise(logits: Tensor, top: float, count: int, work: RowWorkspace) -> Summary:
    """The reference of what a native head does. logits (V,) float32, top their finite maximum."""
    shifted = work.shift(logits, top)
    ids = largest(shifted, count).tolist() if count else []
    values = logits[ids].tolist() if ids else []
    return Summary(tuple(ids), tuple(values), top + math.log(total(work.weigh(1.0))))
