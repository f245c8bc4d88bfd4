"""Log-probabilities of tokens that are there already: a prompt's, seen from the positions before them.

L rows of a step's scores, V vocabulary. The numbers are those that `model.sampling` would give had it chosen the token.
"""

import math
from collections.abc import Sequence

import torch

from model.filters import RowWorkspace
from model.ranking import best_of_rows
from model.sampling import Sampled, scored
from model.scores import Scores, summarise


@torch.inference_mode()
def score(scores: Scores, rows: Sequence[int], tokens: Sequence[int], count: int) -> list[Sampled]:
    """For each of these rows, all whole, the token's log-probability and the `count` best alternatives. Repeatable."""
    picked = scores.pick(rows)
    logits = picked.logits.float()
    work = RowWorkspace(logits.shape[1], logits.device)
    results = []
    for row, (token, top) in enumerate(zip(tokens, best_of_rows(logits)[1].tolist(), strict=True)):
        if not math.isfinite(top):
            results.append(Sampled(token, failed=True))
            continue
        summary = picked.summaries[row] or summarise(logits[row], top, count, work)
        results.append(scored(summary, token, float(logits[row, token]), count))
    return results
