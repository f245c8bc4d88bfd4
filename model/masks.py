"""Which tokens a row may choose at all, as packed bits: token t is bit t % 32 of word t // 32, set where it may.

R rows, V vocabulary. Knows logits and bits; doesn't know why a token is banned.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Mask = NDArray[np.int32]

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_BIASES = np.where(_BITS == 1, np.float32(0), np.float32(-np.inf))  # by byte, what to add to its 8 tokens' logits


def biases(mask: Mask, vocab: int) -> NDArray[np.float32]:
    """0 for tokens that may be chosen, -inf for the others and those beyond the mask. (words,) -> (V,)"""
    spread = _BIASES[mask.view(np.uint8)].reshape(-1)[:vocab]
    if len(spread) == vocab:
        return spread
    return np.concatenate([spread, np.full(vocab - len(spread), -np.inf, np.float32)])


@contextmanager
def masked(logits: Tensor, masks: Sequence[tuple[int, Mask]]) -> Iterator[None]:
    """Within the context these rows of logits (R, V) have -inf where their masks ban; after it they are as before.

    A ban is added and not written over the logit, so that a NaN, or an infinity as one, is still seen.
    """
    before: list[tuple[int, Tensor]] = []
    try:
        for row, mask in masks:
            before.append((row, logits[row].clone()))
            logits[row] += torch.from_numpy(biases(mask, logits.shape[1])).to(logits.device)
        yield
    finally:
        for row, values in before:
            logits[row] = values
