"""XTC, "exclude top choices": now and then the likeliest tokens are passed over, so that a less worn one is said.

After its author's description (p-e-w, text-generation-webui, pull request 6335, 2024): with a given probability, of the
tokens at or above a threshold all but the least likely are removed; a lone one stays. n tokens still in question.
"""

import numpy as np

from model.ranking import Ids, Values


def exclude_top(weights: Values, threshold: float) -> Ids:
    """Places, ascending, of what is left; of equally likely ones the last counts as least likely. (n,) -> (m,)

    The weights need not sum to 1; a token's probability is its share of them.
    """
    wide = weights.astype(np.float64)
    top = np.flatnonzero(wide >= threshold * wide.cumsum()[-1])
    if len(top) < 2:
        return np.arange(len(weights))
    least = top[len(top) - 1 - int(np.argmin(wide[top][::-1]))]
    removed = np.zeros(len(weights), bool)
    removed[top] = True
    removed[least] = False
    return np.flatnonzero(~removed)
