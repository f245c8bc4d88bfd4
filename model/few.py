"""Temperature, top_k, top_p, min_p and the draw among the few best tokens of a row, as numbers of Python.

n tokens, best first, at most `model.batch.MOST_BEST`. Used wherever top_k is that small, whether the few came out of
whole logits or of a native head's summary, so that both give the same token. The order of the filters and the way of
drawing are those of `model.filters`; weights are in double precision here. Knows no seeds.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

from model.sampling_params import SamplingParams

TINY = 1e-38  # a lower temperature leaves the best token alone, as this one does


def choose_few(ids: Sequence[int], logits: Sequence[float], params: SamplingParams, uniform: float) -> int:
    """Which of the top_k best tokens the number `uniform` in [0, 1) draws: its place among them. (n,), (n,)"""
    temperature, top = max(params.temperature, TINY), logits[0]
    weights = [math.exp((logit - top) / temperature) for logit in logits[: params.top_k]]
    ends = list(accumulate(weights))
    kept = len(weights)
    if params.top_p < 1:
        needed = params.top_p * ends[-1]
        kept = next((place + 1 for place, end in enumerate(ends) if end >= needed), kept)
    places = [place for place in range(kept) if weights[place] > 0 and weights[place] >= params.min_p]
    places.sort(key=ids.__getitem__)
    ends = list(accumulate(weights[place] for place in places))
    target = uniform * ends[-1]
    return next((place for place, end in zip(places, ends, strict=True) if end > target), places[-1])
