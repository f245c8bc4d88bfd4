"""What a sequence has said so far, counted for the penalties: each distinct id once, with how often it was generated.

Knows no logits. A pure function of prompt and output, kept up to date a token at a time because counting 4,000 tokens
anew for every token would cost more than sampling.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SPARE = 64  # room for so many more ids before the arrays grow


class TokenHistory:
    """Counts of prompt and output. Hold on to one per sequence; the output may only grow."""

    def __init__(self, prompt: Sequence[int]) -> None:
        distinct = np.unique(np.asarray(prompt, dtype=np.int64))
        self._size = len(distinct)
        self._ids = np.concatenate([distinct, np.zeros(SPARE, np.int64)])
        self._counts = np.zeros(len(self._ids), np.float64)
        self._places = {int(token): place for place, token in enumerate(distinct)}
        self._num_seen = 0

    def update(self, output: Sequence[int]) -> None:
        """Count what was generated since the last call."""
        assert len(output) >= self._num_seen, f"the output shrank from {self._num_seen} to {len(output)} tokens"
        for token in output[self._num_seen :]:
            place = self._place(token)  # first, for it may replace the array
            self._counts[place] += 1
        self._num_seen = len(output)

    @property
    def ids(self) -> NDArray[np.int64]:
        """Distinct ids of prompt and output."""
        return self._ids[: self._size]

    @property
    def counts(self) -> NDArray[np.float64]:
        """How often each of `ids` was generated; 0 for one that only the prompt has."""
        return self._counts[: self._size]

    def _place(self, token: int) -> int:
        place = self._places.get(token)
        if place is not None:
            return place
        if self._size == len(self._ids):
            grown = 2 * self._size
            self._ids = np.resize(self._ids, grown)
            self._counts = np.concatenate([self._counts, np.zeros(grown - self._size)])
        place = self._places[token] = self._size
        self._ids[place] = token
        self._size += 1
        return place
