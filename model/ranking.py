"""The largest values of a row, exactly and without sorting it; ties go to the lowest id.

V vocabulary, G tiles of TILE consecutive ids. Only maxima and comparisons happen here, which are exact in any order, so
neither the number of rows nor of threads shows in a result. Knows no probabilities.
"""

import torch
from torch import Tensor

TILE = 128


def best_of_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Id and value of the largest entry of each row. (R, V) -> (R,), (R,)

    A row that holds a NaN gives NaN, one that holds nothing but -inf gives -inf.
    Looks at each value once: the first tile with the largest maximum, then the first id in it.
    """
    tile = _maxima(values).argmax(-1, keepdim=True)
    # the last tile may be short; its last id then stands in for those beyond, and a later one never wins
    ids = (tile * TILE + torch.arange(TILE, device=values.device)).clamp_(max=values.shape[-1] - 1)
    inside = values.gather(1, ids)
    place = inside.argmax(-1, keepdim=True)
    return ids.gather(1, place).squeeze(1), inside.gather(1, place).squeeze(1)


def candidates(values: Tensor, count: int, *, floor: float) -> Tensor:
    """Ids, ascending, that are sure to include the `count` largest values of a row and all their ties. (V,) -> (C,)

    Values below `floor` are left out, so there may be fewer than count.
    The best values of the `count` best tiles are `count` values, so the least of these is a bound from below, and only
    tiles that reach it need a look. For logits that are spread over the ids at random, C is little more than count.
    """
    maxima = _maxima(values)
    bound = torch.full_like(values[0], floor)
    if count <= len(maxima):
        bound = maxima.topk(count).values[-1].clamp(min=floor)
    ids = torch.arange(TILE, device=values.device)
    ids = ((maxima >= bound).nonzero() * TILE + ids).flatten()
    if len(values) % TILE:
        ids = ids[ids < len(values)]
    return ids[values[ids] >= bound]


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Ids and values of the `count` largest finite entries of a row, best first. (V,) -> (C,), (C,)"""
    ids = candidates(values, count, floor=torch.finfo(values.dtype).min)
    ranked = values[ids].sort(descending=True, stable=True)
    return ids[ranked.indices[:count]], ranked.values[:count]


def _maxima(values: Tensor) -> Tensor:
    """The largest value of each tile. (..., V) -> (..., G); the last tile may be short."""
    vocab = values.shape[-1]
    whole = vocab // TILE * TILE
    parts = []
    if whole:
        parts.append(values[..., :whole].view(*values.shape[:-1], -1, TILE).amax(-1))
    if whole < vocab:
        parts.append(values[..., whole:].amax(-1, keepdim=True))
    return torch.cat(parts, -1) if len(parts) > 1 else parts[0]
