"""The largest values of a row, exactly and without sorting it; ties go to the lowest id.

V vocabulary, G tiles of TILE consecutive ids. Only maxima and comparisons happen here, which are exact in any order, so
neither the number of rows nor of threads shows in a result. Knows no probabilities.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TILE = 128
SMALLEST_TILE = 8

Values = NDArray[np.float32]
Ids = NDArray[np.intp]


def best_of_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Id and value of the largest entry of each row. (R, V) -> (R,), (R,)

    A row that holds a NaN gives NaN, one that holds nothing but -inf gives -inf.
    Looks at each value once: the first tile with the largest maximum, then the first id in it.
    """
    tile = _maxima(values, TILE).argmax(-1, keepdim=True)
    # the last tile may be short; its last id then stands in for those beyond, and a later one never wins
    ids = (tile * TILE + torch.arange(TILE, device=values.device)).clamp_(max=values.shape[-1] - 1)
    inside = values.gather(1, ids)
    place = inside.argmax(-1, keepdim=True)
    return ids.gather(1, place).squeeze(1), inside.gather(1, place).squeeze(1)


def candidates(values: Values, count: int, *, floor: float) -> Ids:
    """Ids, ascending, that are sure to include the `count` largest values of a row and all their ties. (V,) -> (C,)

    Values below `floor` are left out, so there may be fewer than count.
    The best values of the `count` best tiles are `count` values, so the least of these is a bound from below. With many
    more tiles than count, and values spread over the ids at random, C is little more than count.
    """
    width = TILE
    while width > SMALLEST_TILE and 2 * count * width > len(values):
        width //= 2
    maxima = _maxima(torch.from_numpy(values), width).numpy()
    bound = np.partition(maxima, -count)[-count] if count <= len(maxima) else floor
    return np.flatnonzero(values >= max(bound, floor))


def largest(values: Values, count: int) -> Ids:
    """Ids of the `count` largest finite values of a row, best first; fewer if there are fewer. (V,) -> (C,)"""
    ids = candidates(values, count, floor=float(np.finfo(np.float32).min))
    return ids[np.argsort(-values[ids], kind="stable")[:count]]


def _maxima(values: Tensor, width: int) -> Tensor:
    """The largest value of each tile of `width`. (..., V) -> (..., G); the last tile may be short."""
    vocab = values.shape[-1]
    whole = vocab // width * width
    parts = []
    if whole:
        parts.append(values[..., :whole].view(*values.shape[:-1], -1, width).amax(-1))
    if whole < vocab:
        parts.append(values[..., whole:].amax(-1, keepdim=True))
    return torch.cat(parts, -1) if len(parts) > 1 else parts[0]
