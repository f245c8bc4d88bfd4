"""From logits to the next token of each sequence, with its log-probability.

R rows (one per sequence that gets a token in this step), V vocabulary. Order: penalties, bias and bans
(`model.penalties`) -> temperature -> filters -> draw (`model.filters`, one row at a time).
What a row gets depends on the row alone, to the bit: what is vectorised over rows is exact in any order (comparisons)
or elementwise; what rounds runs row by row through the same shapes. Knows no requests and no text.

On a GPU the same code runs: greedy rows stay there, one that draws or wants logprobs has its weights sent to the host.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from model.bans import banned_ids
from model.dry import Repetitions
from model.filters import RowWorkspace, choose, is_greedy, total
from model.history import TokenHistory
from model.penalties import LARGEST, Edits, wants_history
from model.random import uniform
from model.ranking import Values, best_of_rows, largest
from model.sampling_params import SamplingParams


@dataclass(slots=True)
class SamplingRow:
    """What a row's logits are to be turned into a token with.

    position   absolute position of the token to be chosen
    output     the ids generated so far; may be the caller's growing list

    A row may be made anew for each token, or kept, with a new position, for the life of its sequence; kept, it counts
    its prompt only once.
    """

    params: SamplingParams
    position: int
    prompt: Sequence[int]
    output: Sequence[int]
    _history: TokenHistory | None = field(default=None, init=False, repr=False, compare=False)
    _repetitions: Repetitions | None = field(default=None, init=False, repr=False, compare=False)

    def history(self) -> TokenHistory:
        """The counts of prompt and output, up to date."""
        if self._history is None:
            self._history = TokenHistory(self.prompt)
        self._history.update(self.output)
        return self._history

    def repetitions(self) -> Repetitions:
        """What the end of prompt and output repeats, up to date."""
        if self._repetitions is None:
            self._repetitions = Repetitions(self.prompt, self.params.dry_sequence_breakers)
        self._repetitions.update(self.output)
        return self._repetitions


@dataclass(frozen=True, slots=True)
class Sampled:
    """The chosen token; or `failed`: the row held NaN, +inf or only -inf, nothing was chosen, token means nothing.

    logprob, top_ids and top_logprobs are None and empty unless asked for: natural logarithms of the probabilities under
    the model's raw logits; the alternatives best first, ties by lower id; fewer if fewer tokens are possible at all.
    """

    token: int
    logprob: float | None = None
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()
    failed: bool = False


class Sampler:
    """Chooses tokens. Has no state: equal rows give equal results, whenever and in whatever company."""

    @torch.inference_mode()
    def sample(self, logits: Tensor, rows: Sequence[SamplingRow]) -> list[Sampled]:
        """One result per row. logits (R, V); float64 ones are rounded to float32 first.

        The logits are changed while this runs, and the same again when it returns.
        """
        num_rows, vocab = logits.shape
        assert num_rows == len(rows), f"{num_rows} rows of logits for {len(rows)} sequences"
        if not rows:
            return []
        logits = logits.float().contiguous()
        work = RowWorkspace(vocab, logits.device)
        with _edits(rows, vocab).applied(logits):
            tokens, usable = _choose(logits, rows, work)
        logprobs = _logprobs(logits, rows, tokens, usable, work)
        return [logprobs.get(row, Sampled(tokens[row], failed=not usable[row])) for row in range(num_rows)]


def _edits(rows: Sequence[SamplingRow], vocab: int) -> Edits:
    edits = Edits(vocab)
    for number, row in enumerate(rows):
        params = row.params
        if wants_history(params):
            edits.penalise(number, params, row.history())
        if params.dry_multiplier:
            edits.subtract(number, *row.repetitions().penalties(params))
        if params.logit_bias or params.min_tokens or params.bad_words:
            edits.bias(number, params.logit_bias, banned_ids(params, row.prompt, row.output))
        if params.allowed_token_ids:
            edits.keep_only(number, params.allowed_token_ids)
    return edits


def _choose(logits: Tensor, rows: Sequence[SamplingRow], work: RowWorkspace) -> tuple[list[int], list[bool]]:
    """The tokens, and which of them can be trusted because their row was in order."""
    ids, tops = best_of_rows(logits)
    tokens, best = ids.tolist(), tops.tolist()
    usable = [math.isfinite(top) for top in best]
    for number, row in enumerate(rows):
        if usable[number] and not is_greedy(row.params):
            work.shift(logits[number], best[number])
            weights = work.weigh(row.params.temperature)
            tokens[number] = _draw(weights, row)
    return tokens, usable


def _draw(weights: Values, row: SamplingRow) -> int:
    """The token of a row that isn't greedy. XTC has a random number of its own, so that it doesn't move the draw."""
    params = row.params
    where = params.seed, params.choice, row.position
    exclude = params.xtc_probability > 0 and uniform(*where, stream=1) < params.xtc_probability
    return choose(weights, params, uniform(*where), exclude=exclude)


def _logprobs(
    logits: Tensor, rows: Sequence[SamplingRow], tokens: Sequence[int], usable: Sequence[bool], work: RowWorkspace
) -> dict[int, Sampled]:
    """Results by row, for those rows that want logprobs and can have them."""
    wanted = {row: each.params.num_logprobs for row, each in enumerate(rows) if usable[row]}
    asking = {row: count for row, count in wanted.items() if count is not None}
    if not asking:
        return {}
    tops = best_of_rows(logits)[1].tolist()
    return {row: _log_softmax(work, logits[row], tops[row], tokens[row], count) for row, count in asking.items()}


def _log_softmax(work: RowWorkspace, logits: Tensor, top: float, token: int, count: int) -> Sampled:
    """The result of one row (V,) with the logarithms of the probabilities of `token` and of the `count` best ones."""
    shifted = work.shift(logits, top)
    best = largest(shifted, count) if count else np.zeros(0, np.intp)
    values = shifted[[token, *best]].tolist()
    normaliser = math.log(total(work.weigh(1.0)))
    logprob, *top_logprobs = (_finite(value - normaliser) for value in values)
    return Sampled(token, logprob, tuple(best.tolist()), tuple(top_logprobs))


def _finite(logprob: float) -> float:
    """Rounded to float32, and finite, which JSON needs."""
    return float(np.float32(max(logprob, -LARGEST)))
