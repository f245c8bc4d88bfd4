"""From the logits of one row to one token: temperature, top_k, top_p, min_p, and the draw.

V vocabulary (padded to whole tiles), n tokens still in question. Everything here takes a single row and goes the same
way through the same shapes for it each time, so its neighbours can't change a bit of its result. Knows no seeds.

A token's weight is exp((logit - largest logit) / temperature), in float32; the best token's weight is exactly 1.
Filters run in the order of the widely used tools: top_k, then top_p over what top_k left, then min_p. Where tokens tie
(after rounding to float32), the lower id is the better one.
"""

import torch
from torch import Tensor

from model.ranking import TILE, candidates
from model.sampling_params import SamplingParams

NUM_CANDIDATES = 128  # most nuclei are smaller
TINY = torch.finfo(torch.float32).tiny  # lighter tokens have no chance that 53 random bits could tell from none
NUM_BUCKETS = (0x3F800000 >> 16) + 1  # as many as the upper 16 bits of a float32 in [0, 1] have values


class Workspace:
    """Memory for one row in whole tiles, used for one row after another, so that each has the same alignment."""

    def __init__(self, vocab: int, device: torch.device) -> None:
        self._vocab = vocab
        self._row = torch.empty(-(-vocab // TILE) * TILE, dtype=torch.float32, device=device)

    def shifted(self, logits: Tensor, top: float) -> Tensor:
        """logits - top, padded with -inf to whole tiles; valid until the next call. (V,) -> (whole tiles,)"""
        torch.sub(logits, top, out=self._row[: self._vocab])
        self._row[self._vocab :] = -torch.inf
        return self._row


def total(weights: Tensor) -> Tensor:
    """Their sum in float64, always added in the same order. (whole tiles,) -> ()"""
    return weights.view(-1, TILE).sum(1).sum(dtype=torch.float64)


def is_greedy(params: SamplingParams) -> bool:
    """Whether only the best token can be chosen, so that no weights are needed."""
    return params.temperature == 0 or params.top_k == 1 or params.top_p <= 0


def choose(shifted: Tensor, params: SamplingParams, uniform: float) -> Tensor:
    """The id of the token that the number `uniform` in [0, 1) draws. Overwrites `shifted`. (whole tiles,) -> ()

    shifted is logits - largest logit. Inverse transform sampling: the kept tokens lie side by side in order of their
    ids, each as wide as its weight; the chosen one is where `uniform` of the whole width falls.
    """
    weights = shifted.div_(max(params.temperature, TINY)).exp_()
    if params.top_k <= 0 and params.top_p >= 1 and params.min_p <= 0:
        return _draw_from_tiles(weights, uniform)
    ids = kept_ids(weights, params)
    return ids.take(_draw(weights[ids], uniform)[0])


def kept_ids(weights: Tensor, params: SamplingParams) -> Tensor:
    """The ids, ascending, that top_k, top_p and min_p leave; one of the three must be on. (whole tiles,) -> (n,)"""
    if params.top_k > 0:
        ids = keep_best(weights, params.top_k, by_mass=False)
        if params.top_p < 1:
            inside = weights[ids]
            mass = inside.cumsum(0, dtype=torch.float64)[-1].item()
            ids = ids[keep_best(inside, params.top_p * mass, by_mass=True)]
    elif params.top_p < 1:
        ids = keep_best(weights, params.top_p * total(weights).item(), by_mass=True)
    else:
        return (weights >= params.min_p).nonzero().squeeze(1)
    return ids[weights[ids] >= params.min_p]


def keep_best(weights: Tensor, enough: float, *, by_mass: bool) -> Tensor:
    """Places, ascending, of the best tokens: best first, until they are `enough` together. (n,) -> (m,)

    Each counts 1, or with by_mass its weight (the smallest set that holds the mass). The best one is always in. Tokens
    lighter than TINY never are.
    """
    places = candidates(weights, NUM_CANDIDATES, floor=TINY)
    held = weights[places].cumsum(0, dtype=torch.float64)[-1].item() if by_mass else len(places)
    if held < enough:
        return _keep_best_by_buckets(weights, enough, by_mass=by_mass)
    return _best_of(weights, places, enough, by_mass=by_mass).sort().values


def _best_of(weights: Tensor, places: Tensor, enough: float, *, by_mass: bool) -> Tensor:
    """Those of `places` (ascending) that come first, best first, until they are enough; in that order."""
    ranked = weights[places].sort(descending=True, stable=True)
    amounts = ranked.values.double() if by_mass else torch.ones_like(ranked.values, dtype=torch.float64)
    better = torch.nn.functional.pad(amounts.cumsum(0)[:-1], (1, 0))  # what the better ones are together
    return places[ranked.indices[better < enough]]


def _keep_best_by_buckets(weights: Tensor, enough: float, *, by_mass: bool) -> Tensor:
    """keep_best for many tokens: sorts only those in the one bucket of near-equal weights where the border lies.

    The bits of positive floats are ordered as the floats are, so the upper 16 (exponent and 7 bits) number the buckets.
    """
    buckets = weights.view(torch.int32) >> 16
    amounts = torch.bincount(buckets, weights.double() if by_mass else None, minlength=NUM_BUCKETS).double()
    held = amounts.flip(0).cumsum(0)  # by the best bucket, the two best ones, ...
    place = int((held < enough).sum())
    if place >= NUM_BUCKETS - 1:  # even all are not enough, or only the bucket around zero is left
        return (weights >= TINY).nonzero().squeeze(1)
    border = NUM_BUCKETS - 1 - place
    rest = enough - (held[place] - amounts[border]).item()
    inside = _best_of(weights, (buckets == border).nonzero().squeeze(1), rest, by_mass=by_mass)
    kept = buckets > border
    kept[inside] = True
    return kept.nonzero().squeeze(1)


def _draw(weights: Tensor, uniform: float | Tensor) -> tuple[Tensor, Tensor]:
    """In whose share `uniform` of the whole falls, and where in that share, in [0, 1]. (n,) -> (), ()"""
    ends = weights.cumsum(0, dtype=torch.float64)
    target = ends[-1] * uniform
    last = torch.searchsorted(ends, ends[-1])  # the last token that has a weight, should rounding lead beyond it
    place = torch.minimum(torch.searchsorted(ends, target, right=True), last)
    share = weights.take(place).double()
    return place, ((target - (ends.take(place) - share)) / share).clamp_(0, 1)


def _draw_from_tiles(weights: Tensor, uniform: float) -> Tensor:
    """_draw in two steps, first the tile and then the token in it, to add up few numbers. (whole tiles,) -> ()"""
    tiles = weights.view(-1, TILE)
    tile, rest = _draw(tiles.sum(1), uniform)
    inside = tiles.index_select(0, tile.view(1)).squeeze(0)
    return tile * TILE + _draw(inside, rest)[0]
