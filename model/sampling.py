"""From logits to the next token of each sequence, with its log-probability.

R rows (one per sequence that gets a token in this step), V vocabulary. Order: penalties, bias and bans
(`model.penalties`) -> mask (`model.masks`) -> temperature -> filters -> draw (`model.filters`, one row at a time).
What a row gets depends on the row alone, to the bit: what is vectorised over rows is exact in any order (comparisons)
or elementwise; what rounds runs row by row through the same shapes. Knows no requests and no text.

On a GPU the same code runs: greedy rows stay there, one that draws or wants logprobs has its weights sent to the host.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from model.bans import banned_ids
from model.batch import Wish
from model.dry import Repetitions
from model.few import choose_few
from model.filters import RowWorkspace, choose
from model.history import TokenHistory
from model.masks import Mask, banned
from model.penalties import LARGEST, Edits, wants_history
from model.random import uniform
from model.ranking import best_of_rows, largest
from model.sampling_params import SamplingParams
from model.scores import Scores, Summary, summarise
from model.wishes import chooses_among_few, is_greedy, wish_of


@dataclass(slots=True)
class SamplingRow:
    """What a row's logits are to be turned into a token with.

    position   absolute position of the token to be chosen
    output     the ids generated so far; may be the caller's growing list
    mask       the tokens that may be chosen; also says when stop tokens may come, whatever min_tokens is. None: all.
               May be an array that its owner changes; which of the two it is doesn't change once `wish` was read

    A row may be made anew for each token, or kept, with a new position, for the life of its sequence; kept, it counts
    its prompt only once.
    """

    params: SamplingParams
    position: int
    prompt: Sequence[int]
    output: Sequence[int]
    mask: Mask | None = field(default=None, repr=False, compare=False)
    _history: TokenHistory | None = field(default=None, init=False, repr=False, compare=False)
    _repetitions: Repetitions | None = field(default=None, init=False, repr=False, compare=False)
    _wish: Wish | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def wish(self) -> Wish:
        """What must be known of its logits."""
        if self._wish is None:
            wish = wish_of(self.params)
            self._wish = wish if self.mask is None else replace(wish, whole=True)
        return self._wish

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

    def choose(self, scores: Scores, rows: Sequence[SamplingRow]) -> list[Sampled]:
        """One result per row, from the row's summary where this is all there is, else from its whole logits."""
        assert len(scores) == len(rows), f"{len(scores)} rows of scores for {len(rows)} sequences"
        results: list[Sampled | None] = []
        whole: list[int] = []
        for number, (place, summary, row) in enumerate(zip(scores.places, scores.summaries, rows, strict=True)):
            if place is None:
                assert summary is not None, f"row {number} has neither logits nor a summary"
                results.append(_from_summary(summary, row))
            else:
                results.append(None)
                whole.append(number)
        if whole:
            summaries = [scores.summaries[number] for number in whole]
            others = iter(self.sample(scores.logits, [rows[number] for number in whole], summaries))
        return [next(others) if result is None else result for result in results]

    @torch.inference_mode()
    def sample(
        self, logits: Tensor, rows: Sequence[SamplingRow], summaries: Sequence[Summary | None] | None = None
    ) -> list[Sampled]:
        """One result per row. logits (R, V); float64 ones are rounded to float32 first.

        The logits are changed while this runs, and the same again when it returns. summaries, where a row has one, are
        those of the raw logits; others are made here.
        """
        num_rows, vocab = logits.shape
        assert num_rows == len(rows), f"{num_rows} rows of logits for {len(rows)} sequences"
        if not rows:
            return []
        logits = logits.float().contiguous()
        work = RowWorkspace(vocab, logits.device)
        masks = [(number, row.mask) for number, row in enumerate(rows) if row.mask is not None]
        with _edits(rows, vocab).applied(logits):
            tokens, usable = _choose(logits, rows, masks, work)
        logprobs = _logprobs(logits, rows, tokens, usable, summaries or [None] * num_rows, work)
        return [logprobs.get(row, Sampled(tokens[row], failed=not usable[row])) for row in range(num_rows)]


def _from_summary(summary: Summary, row: SamplingRow) -> Sampled:
    """The token of a row whose wish was not for whole logits."""
    params, ids, logits = row.params, summary.ids, summary.logits
    if not ids or not math.isfinite(logits[0]):
        return Sampled(0, failed=True)
    place = 0 if is_greedy(params) else choose_few(ids, logits, params, _uniform(row))
    if params.num_logprobs is None:
        return Sampled(ids[place])
    return scored(summary, ids[place], logits[place], params.num_logprobs)


def _uniform(row: SamplingRow) -> float:
    return uniform(row.params.seed, row.params.choice, row.position)


def _excludes(row: SamplingRow) -> bool:
    """Whether XTC acts this time: by a random number of its own, so that it doesn't move the draw."""
    params = row.params
    if params.xtc_probability <= 0:
        return False
    return uniform(params.seed, params.choice, row.position, stream=1) < params.xtc_probability


def _edits(rows: Sequence[SamplingRow], vocab: int) -> Edits:
    edits = Edits(vocab)
    for number, row in enumerate(rows):
        params = row.params
        if wants_history(params):
            edits.penalise(number, params, row.history())
        if params.dry_multiplier:
            edits.subtract(number, *row.repetitions().penalties(params))
        if params.logit_bias or params.min_tokens or params.bad_words:
            edits.bias(
                number, params.logit_bias, banned_ids(params, row.prompt, row.output, masked=row.mask is not None)
            )
        if params.allowed_token_ids:
            edits.keep_only(number, params.allowed_token_ids)
    return edits


def _choose(
    logits: Tensor, rows: Sequence[SamplingRow], masks: Sequence[tuple[int, Mask]], work: RowWorkspace
) -> tuple[list[int], list[bool]]:
    """The tokens, and which of them can be trusted because their row was in order. masks: by row number."""
    bound = banned(logits, masks)
    its = {number: values for (number, _), values in zip(masks, bound, strict=True)}
    all_bound = len(its) == len(rows)  # then they are in order
    tokens, best = (each.tolist() for each in best_of_rows(bound if all_bound else logits))
    if its and not all_bound:
        for number, token, top in zip(its, *best_of_rows(bound), strict=True):
            tokens[number], best[number] = int(token), float(top)
    usable = [math.isfinite(top) for top in best]
    for number, row in enumerate(rows):
        if usable[number] and not is_greedy(row.params):
            tokens[number] = _draw(its.get(number, logits[number]), best[number], row, work)
    return tokens, usable


def _draw(logits: Tensor, top: float, row: SamplingRow, work: RowWorkspace) -> int:
    """The token of one row (V,) that is not greedy."""
    if chooses_among_few(row.params):
        values = logits.cpu().numpy()
        ids = largest(values, row.params.top_k)
        return int(ids[choose_few(ids.tolist(), values[ids].tolist(), row.params, _uniform(row))])
    work.shift(logits, top)
    return choose(work.weigh(row.params.temperature), row.params, _uniform(row), exclude=_excludes(row))


def _logprobs(
    logits: Tensor,
    rows: Sequence[SamplingRow],
    tokens: Sequence[int],
    usable: Sequence[bool],
    summaries: Sequence[Summary | None],
    work: RowWorkspace,
) -> dict[int, Sampled]:
    """Results by row, for those rows that want logprobs and can have them."""
    wanted = {row: each.params.num_logprobs for row, each in enumerate(rows) if usable[row]}
    asking = {row: count for row, count in wanted.items() if count is not None}
    if any(summaries[row] is None for row in asking):
        tops = best_of_rows(logits)[1].tolist()
    results = {}
    for row, count in asking.items():
        summary = summaries[row] or summarise(logits[row], tops[row], count, work)
        results[row] = scored(summary, tokens[row], float(logits[row, tokens[row]]), count)
    return results


def scored(summary: Summary, token: int, logit: float, count: int) -> Sampled:
    """The token and the `count` best ones with the logarithms of their probabilities under the raw logits."""
    best = tuple(_finite(each - summary.log_sum) for each in summary.logits[:count])
    return Sampled(token, _finite(logit - summary.log_sum), summary.ids[:count], best)


def _finite(logprob: float) -> float:
    """Rounded to float32, and finite, which JSON needs."""
    return float(np.float32(max(logprob, -LARGEST)))
