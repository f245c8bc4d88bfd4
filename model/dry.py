"""DRY, "don't repeat yourself": a token that would prolong a repetition is the less likely the longer that is.

After its author's description (p-e-w, text-generation-webui, pull request 5637, 2024): where the text's last L tokens
stood before, the token that followed them there loses multiplier * base ** (L - allowed_length), if L is at least
allowed_length. Breakers end a repetition and are never penalised. n tokens of text. Knows ids, no logits.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from model.ranking import Ids
from model.sampling_params import SamplingParams

SPARE = 256  # room for so many more tokens before the arrays grow
LARGEST_EXPONENT = 700.0  # exp of more would overflow float64


class Repetitions:
    """Of a growing text: how many of its last tokens also stand before each of its places.

    Hold on to one per sequence: from scratch a text costs linear time in plain Python, a further token one pass of
    comparisons. Whole numbers only, so that it makes no difference which way they came.
    """

    def __init__(self, prompt: Sequence[int], breakers: Collection[int]) -> None:
        self._breakers = frozenset(breakers)
        self._size = len(prompt)
        self._tokens = np.zeros(self._size + SPARE, np.int64)
        self._tokens[: self._size] = prompt
        self._lengths = np.zeros(self._size + SPARE, np.int64)  # [i]: last tokens that also end at i
        self._lengths[: self._size] = _common_ends(prompt, self._breakers)
        self._num_seen = 0  # of the output

    def update(self, output: Sequence[int]) -> None:
        """Add what was generated since the last call."""
        for token in output[self._num_seen :]:
            self._append(token)
        self._num_seen = len(output)

    def penalties(self, params: SamplingParams) -> tuple[Ids, NDArray[np.float64]]:
        """Ids, each once, and what their logits are to lose."""
        start = 0 if params.dry_penalty_last_n < 0 else max(0, self._size - params.dry_penalty_last_n)
        places = np.arange(start, max(start, self._size - 1))
        lengths = np.minimum(self._lengths[places], places - start + 1)
        long = lengths >= params.dry_allowed_length
        followers = self._tokens[places[long] + 1]
        ids, which = np.unique(followers, return_inverse=True)
        longest = np.zeros(len(ids), np.int64)
        np.maximum.at(longest, which, lengths[long])
        loses = np.array([token not in self._breakers for token in ids.tolist()], bool)
        exponent = (longest[loses] - params.dry_allowed_length) * np.log(params.dry_base)
        return ids[loses], params.dry_multiplier * np.exp(np.minimum(exponent, LARGEST_EXPONENT))

    def _append(self, token: int) -> None:
        if self._size == len(self._tokens):
            spare = np.zeros(self._size, np.int64)
            self._tokens, self._lengths = np.append(self._tokens, spare), np.append(self._lengths, spare)
        n = self._size
        self._tokens[n] = token
        if token in self._breakers:
            self._lengths[: n + 1] = 0
        else:
            longer = np.where(self._tokens[1:n] == token, self._lengths[: n - 1] + 1, 0) if n else self._lengths[:0]
            self._lengths[1:n] = longer
            self._lengths[:1] = self._tokens[:1] == token
        self._size += 1


def _common_ends(tokens: Sequence[int], breakers: Collection[int]) -> list[int]:
    """For each place but the last, how many tokens up to it equal the text's last ones, up to a breaker. (n,)

    The Z-function of the reversed text (Gusfield, "Algorithms on Strings, Trees and Sequences", 1997, section 1.4).
    """
    text = tokens[::-1]
    size = len(text)
    limit = next((place for place, token in enumerate(text) if token in breakers), size)
    lengths = [0] * size
    left = right = 0  # text[left:right] equals text[:right - left], and right is as far as is known
    for place in range(1, size):
        length = min(right - place, lengths[place - left]) if place < right else 0
        while place + length < size and text[place + length] == text[length]:
            length += 1
        lengths[place] = length
        if place + length > right:
            left, right = place, place + length
    return [min(length, limit) for length in reversed(lengths)]
