"""Locally typical sampling: keep the tokens whose surprise is nearest to what is expected of this distribution.

Meister, Pimentel, Wiher and Cotterell, "Locally Typical Sampling" (TACL 2023): of the tokens by |-log p - H|, smallest
first, the fewest that hold `share` of the mass. H is the distribution's entropy. n tokens still in question.
"""

import numpy as np

from model.ranking import Ids, Values


def keep_typical(weights: Values, share: float) -> Ids:
    """Places, ascending, of the kept tokens, at least one; ties to the first. (n,) -> (m,)

    The weights need not sum to 1. A token without any is not kept.
    """
    alive = np.flatnonzero(weights)
    inside = weights[alive].astype(np.float64)
    whole = inside.cumsum()[-1]
    probabilities = inside / whole
    surprise = -np.log(probabilities)
    entropy = (probabilities * surprise).cumsum()[-1]
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    needed = int(inside[order].cumsum().searchsorted(share * whole)) + 1
    return np.sort(alive[order[:needed]])
