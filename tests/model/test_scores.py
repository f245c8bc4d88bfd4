"""What a step says of its rows; and rows with a summary get what whole rows get."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from model.filters import RowWorkspace
from model.ranking import best_of_rows
from model.sampling import Sampler, SamplingRow
from model.sampling_params import SamplingParams
from model.scores import Scores, Summary, summarise

VOCAB = 1000


def random_logits(rows: int, seed: int = 0) -> Tensor:
    logits = 3 * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))
    logits[::3] = logits[::3].round()  # ties
    return logits


def summarised(logits: Tensor, count: int = 64) -> list[Summary]:
    tops, work = best_of_rows(logits)[1].tolist(), RowWorkspace(VOCAB, logits.device)
    return [summarise(row, top, count, work) for row, top in zip(logits, tops, strict=True)]


def mixed(logits: Tensor, rows: list[SamplingRow]) -> Scores:
    """What a native head gives: a summary for each row, logits only for those that need them."""
    whole = [number for number, row in enumerate(rows) if row.wish.whole]
    places = [whole.index(number) if number in whole else None for number in range(len(rows))]
    return Scores(logits[whole], places, summarised(logits))


def random_rows(count: int) -> list[SamplingRow]:
    rng = np.random.default_rng(1)
    rows = []
    for number in range(count):
        params = SamplingParams(
            temperature=float(rng.choice([0.0, 0.7, 1.5])),
            top_k=int(rng.choice([0, 1, 5, 40, 64, 65])),
            top_p=float(rng.choice([0.0, 0.8, 1.0])),
            min_p=float(rng.choice([0.0, 0.05])),
            logit_bias={3: 0.0} if rng.random() < 0.3 else {},
            seed=number,
            num_logprobs=[None, 0, 5, 20][rng.integers(4)],
        )
        rows.append(SamplingRow(params, number, (), ()))
    return rows


def test_a_summary_will_do_and_neighbours_with_whole_rows_do_not_show() -> None:
    logits, rows = random_logits(90), random_rows(90)
    needs_whole = [row.wish.whole for row in rows]
    assert any(needs_whole)
    assert not all(needs_whole)
    assert Sampler().choose(mixed(logits, rows), rows) == Sampler().choose(Scores.of(logits), rows)


def test_a_bias_of_nothing_moves_a_row_to_its_whole_logits_and_changes_no_bit() -> None:
    logits, rows = random_logits(60), [row for row in random_rows(90) if not row.wish.whole]
    logits = logits[: len(rows)]
    biased = [SamplingRow(replace(row.params, logit_bias={7: 0.0}), row.position, (), ()) for row in rows]
    assert all(row.wish.whole for row in biased)
    assert Sampler().choose(mixed(logits, rows), rows) == Sampler().choose(mixed(logits, biased), biased)


def test_picked_rows_are_the_same_rows() -> None:
    logits, rows = random_logits(30), random_rows(30)
    scores, order = mixed(logits, rows), [7, 3, 29, 0, 12, 11]
    picked = scores.pick(order)
    assert len(picked) == len(order)
    assert [place for place in picked.places if place is not None] == list(range(len(picked.logits)))
    everything = Sampler().choose(scores, rows)
    assert Sampler().choose(picked, [rows[i] for i in order]) == [everything[i] for i in order]
    assert len(scores.pick([])) == 0


@pytest.mark.parametrize("logits", [(math.nan,), (math.inf, 2.0), ()], ids=str)
def test_a_summary_of_a_broken_row_fails(logits: tuple[float, ...]) -> None:
    summary = Summary(tuple(range(len(logits))), logits, math.nan)
    scores = Scores(torch.empty(0, VOCAB), [None], [summary])
    row = SamplingRow(SamplingParams(temperature=0.0, num_logprobs=1), 0, (), ())
    (result,) = Sampler().choose(scores, [row])
    assert result.failed
    assert result.logprob is None


def test_as_many_rows_as_scores() -> None:
    with pytest.raises(AssertionError, match="3 rows of scores for 1"):
        Sampler().choose(Scores.of(random_logits(3)), random_rows(1))


def test_the_reference_summary_is_the_head_of_the_sorted_row_and_the_log_of_the_sum() -> None:
    logits = random_logits(6)
    logits[1, 5:] = -math.inf
    for row, summary in zip(logits, summarised(logits, 9), strict=True):
        values = row.tolist()
        best = sorted((t for t in range(VOCAB) if values[t] > -math.inf), key=lambda t: (-values[t], t))[:9]
        assert summary.ids == tuple(best)
        assert summary.logits == tuple(values[token] for token in best)
        assert summary.log_sum == pytest.approx(float(row.double().logsumexp(0)), abs=1e-6)
