"""Log-probabilities for events: those of chosen tokens, and those of prompts, which have rows of a step of their own.

A prompt's token at position p is scored by the logits of position p - 1, so the first one has no score. The head works
on a bounded number of such rows per step (`server.engine.scheduler`), never on prompt length x vocabulary.
"""

from collections.abc import Sequence
from functools import partial

from model.sampling import Sampled
from model.scores import Scores
from model.scoring import score
from server.engine.isolation import run_isolated
from server.engine.request import Request, TokenLogprob
from server.engine.scheduler import Work

Scored = dict[int, tuple[TokenLogprob, ...] | Exception]  # by arrival number


class NotFinite(ArithmeticError):
    """A row of logits holds no distribution."""


def first_rows(work: Sequence[Work]) -> list[int]:
    """For each piece of work, which row of the step's scores is its first."""
    starts, row = [], 0
    for each in work:
        starts.append(row)
        row += each.chunk.num_logits
    return starts


def score_prompts(work: Sequence[Work], scores: Scores) -> Scored:
    """The scores that these pieces of prompts bring. One that can't be scored gets its exception."""
    found: Scored = {}
    for each, first in zip(work, first_rows(work), strict=True):
        if each.num_scored:
            ((_, result),) = run_isolated(partial(_score, scores, first), (each,))
            found[each.generation.arrival] = result
    return found


def choice_logprobs(request: Request, choice: Sampled) -> tuple[TokenLogprob, ...]:
    """The event's entry for the token that was chosen: none unless the request asked."""
    if request.params.num_logprobs is None:
        return ()
    return (_entry(choice),)


def _score(scores: Scores, first: int, only: Sequence[Work]) -> tuple[TokenLogprob, ...]:
    (work,) = only
    generation = work.generation
    begin = generation.num_scored + 1
    tokens = generation.request.prompt[begin : begin + work.num_scored]
    rows = range(first, first + work.num_scored)
    return tuple(map(_entry, score(scores, rows, tokens, generation.request.prompt_logprobs or 0)))


def _entry(sampled: Sampled) -> TokenLogprob:
    if sampled.failed:
        raise NotFinite("the model's logits are not finite")
    assert sampled.logprob is not None, f"no logprob for token {sampled.token}"
    return TokenLogprob(sampled.logprob, sampled.top_ids, sampled.top_logprobs)
