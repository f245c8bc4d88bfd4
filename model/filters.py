"""From the logits of one row to one token: temperature, top_k, typical_p, top_p, min_p, XTC, and the draw.

V vocabulary (padded to whole tiles), n tokens still in question. Everything here takes a single row and goes the same
way through the same shapes for it each time, so its neighbours can't change a bit of its result. Knows no seeds.

A token's weight is exp((logit - largest logit) / temperature), in float32; the best token's weight is exactly 1.
Filters run in the order of the widely used tools, each over what the ones before it left: top_k, typical_p, top_p,
min_p, XTC. Where weights are equal (rounded to float32), the lower id is the better one.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.ranking import TILE, Ids, Values, candidates
from model.sampling_params import SamplingParams
from model.typical import keep_typical
from model.xtc import exclude_top

TINY = float(np.finfo(np.float32).tiny)  # a lighter token has no chance that 53 random bits could tell from none


class RowWorkspace:
    """Memory for one row in whole tiles, used for one row after another, so that each has the same alignment."""

    def __init__(self, vocab: int, device: torch.device) -> None:
        self._vocab = vocab
        self._row = torch.empty(-(-vocab // TILE) * TILE, dtype=torch.float32, device=device)
        self._shifted = self._row[:vocab]

    def shift(self, logits: Tensor, top: float) -> Values:
        """logits - top, padded with -inf; good until the next call of any method. (V,) -> (whole tiles,)"""
        torch.sub(logits, top, out=self._shifted)
        if self._vocab % TILE:
            self._row[self._vocab :] = -torch.inf
        return self._row.cpu().numpy()

    def weigh(self, temperature: float) -> Values:
        """The weights of what was shifted last, at the same place. (whole tiles,)

        As a power of two, which is computed faster: exp(x / t) = 2 ** (x * log2(e) / t).
        """
        self._row.mul_(math.log2(math.e) / max(temperature, TINY)).exp2_()
        return self._row.cpu().numpy()


def tile_sums(weights: Values) -> Values:
    """The sum of each tile. (whole tiles,) -> (G,)"""
    sums: Values = torch.from_numpy(weights).view(-1, TILE).sum(1).numpy()  # numpy takes three times as long
    return sums


def total(weights: Values) -> float:
    """Their sum, always added in the same order. (whole tiles,)"""
    return float(tile_sums(weights).astype(np.float64).cumsum()[-1])


def choose(weights: Values, params: SamplingParams, uniform: float, *, exclude: bool = False) -> int:
    """The id of the token that the number `uniform` in [0, 1) draws. exclude: XTC acts this time. (whole tiles,)

    Inverse transform sampling: the kept tokens lie side by side in order of their ids, each as wide as its weight; the
    chosen one is where `uniform` of the whole width falls.
    """
    if not filters(params) and not exclude:
        return _draw_from_tiles(weights, uniform)
    ids = kept_ids(weights, params)
    if exclude:
        ids = ids[exclude_top(weights[ids], params.xtc_threshold)]
    return int(ids[_draw(weights[ids], uniform)[0]])


def filters(params: SamplingParams) -> bool:
    """Whether some tokens are to be left out of every draw."""
    return params.top_k > 0 or params.typical_p < 1 or params.top_p < 1 or params.min_p > 0


def kept_ids(weights: Values, params: SamplingParams) -> Ids:
    """The ids, ascending, that top_k, typical_p, top_p and min_p leave. (whole tiles,) -> (n,)"""
    ids: Ids | None = None  # all of them
    if params.top_k > 0:
        ids = keep_count(weights, params.top_k)
    if params.typical_p < 1:
        ids = _narrow(ids, keep_typical(weights if ids is None else weights[ids], params.typical_p))
    if params.top_p < 1:
        inside = weights if ids is None else weights[ids]
        whole = total(weights) if ids is None else float(inside.astype(np.float64).cumsum()[-1])
        ids = _narrow(ids, keep_mass(inside, params.top_p, whole))
    if ids is None:
        return np.flatnonzero(weights >= max(params.min_p, TINY))
    inside = weights[ids]
    return ids[np.flatnonzero(inside >= params.min_p * inside.max())]


def _narrow(ids: Ids | None, places: Ids) -> Ids:
    """The ids at these places; None: of all ids."""
    return places if ids is None else ids[places]


def keep_count(weights: Values, count: int) -> Ids:
    """Places, ascending, of the `count` best tokens; fewer if fewer have a weight. (n,) -> (m,)"""
    near = candidates(weights, count, floor=TINY)
    inside = weights[near]
    return near[_best_of(inside, np.sort(inside)[::-1][:count])]


def keep_mass(weights: Values, share: float, whole: float) -> Ids:
    """Places, ascending, of the fewest best tokens that hold `share` of the `whole` mass; at least one. (n,) -> (m,)

    All those lighter than (1 - share) * whole / n hold less than (1 - share) * whole together, so they can't be among
    them. That leaves few to sort.
    """
    lightest = 0.99 * (1 - share) * whole / len(weights)  # 0.99: room for rounding
    near = np.flatnonzero(weights >= max(lightest, TINY))
    inside = weights[near]
    ranked = np.sort(inside)[::-1]
    needed = int(ranked.astype(np.float64).cumsum().searchsorted(share * whole)) + 1
    return near[_best_of(inside, ranked[:needed])]


def _best_of(weights: Values, best: Values) -> Ids:
    """Places, ascending, of the tokens whose weights are `best`, sorted; ties to the first. (n,), (m,) -> (m,)"""
    kept = weights > best[-1]
    tied = np.flatnonzero(weights == best[-1])
    kept[tied[: len(best) - np.count_nonzero(kept)]] = True
    return np.flatnonzero(kept)


def _draw(weights: Values, uniform: float) -> tuple[int, float]:
    """In whose share `uniform` of the whole falls, and where in that share, in [0, 1]. (n,)"""
    ends: NDArray[np.float64] = weights.astype(np.float64).cumsum()
    target = ends[-1] * uniform
    last = ends.searchsorted(ends[-1])  # the last token that has a weight, should rounding lead beyond it
    place = int(min(ends.searchsorted(target, side="right"), last))
    before = ends[place - 1] if place else 0.0
    return place, float(min((target - before) / (ends[place] - before), 1.0))


def _draw_from_tiles(weights: Values, uniform: float) -> int:
    """_draw in two steps, first the tile and then the token in it, to add up few numbers. (whole tiles,)"""
    tile, rest = _draw(tile_sums(weights), uniform)
    start = tile * TILE
    return start + _draw(weights[start : start + TILE], rest)[0]
