"""Scores of given tokens are what the sampler would have said of them, had it chosen them."""

import math
from dataclasses import replace

import pytest
import torch

from model.sampling import Sampler, SamplingRow
from model.sampling_params import SamplingParams
from model.scores import Scores
from model.scoring import score
from tests.helpers.reference_sampler import log_softmax

LOGITS = 3 * torch.randn(12, 333, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("count", [0, 1, 20])
def test_a_score_is_the_log_softmax_of_the_row(count: int) -> None:
    tokens = [(7 * row) % 333 for row in range(12)]
    for row, found in enumerate(score(Scores.of(LOGITS), range(12), tokens, count)):
        expected = log_softmax(LOGITS[row].double().tolist())
        assert found.token == tokens[row]
        assert found.logprob == pytest.approx(expected[tokens[row]], abs=3e-6)
        best = sorted(range(333), key=lambda token: (-expected[token], token))[:count]
        assert list(found.top_ids) == best
        assert found.top_logprobs == pytest.approx([expected[token] for token in best], abs=3e-6)


def test_the_bits_are_those_of_a_token_that_was_chosen_whatever_rows_are_around() -> None:
    params = SamplingParams(temperature=0.0, num_logprobs=4)
    rows = [SamplingRow(replace(params, logit_bias={token: 1000.0}), 3, (), ()) for token in range(12)]
    chosen = Sampler().sample(LOGITS, rows)
    assert score(Scores.of(LOGITS), range(12), range(12), 4) == chosen
    assert score(Scores.of(LOGITS), [3, 9], [3, 9], 4) == [chosen[3], chosen[9]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_broken_row_fails_alone(value: float) -> None:
    logits = LOGITS.clone()
    logits[1] = value
    found = score(Scores.of(logits), range(3), [0, 1, 2], 1)
    assert [each.failed for each in found] == [False, True, False]
