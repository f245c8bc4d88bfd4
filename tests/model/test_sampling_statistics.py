"""Draws follow the distribution that the parameters define: chi-square tests with fixed seeds, which never flicker."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from model.sampling import Sampler, SamplingRow
from model.sampling_params import SamplingParams
from tests.helpers.reference_sampler import distribution, edited, too_far

VOCAB = 200
NUM_DRAWS = 3000
PROMPT, OUTPUT = [1, 2, 3], [3, 3, 4]

CASES = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 5},
    {"top_k": 60},
    {"top_p": 0.7},
    {"top_p": 0.95},
    {"min_p": 0.1},
    {"top_k": 20, "top_p": 0.8, "min_p": 0.1, "temperature": 1.3},
    {"repetition_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": -0.5},
    {"logit_bias": {5: 4.0, 6: -100.0}},
    {"min_tokens": 10, "stop_token_ids": (0, 7, 9)},
]


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    """The most likely tokens have the lowest ids, so that what happens to these shows."""
    return 1.5 * torch.randn(VOCAB, generator=torch.Generator().manual_seed(11)).sort(descending=True).values


def draws(logits: torch.Tensor, rows: list[SamplingRow]) -> list[int]:
    return [each.token for each in Sampler().sample(logits.expand(len(rows), -1), rows)]


def counts(tokens: list[int]) -> list[float]:
    counted = Counter(tokens)
    return [counted[token] for token in range(VOCAB)]


def expected_counts(logits: torch.Tensor, params: SamplingParams) -> list[float]:
    probabilities = distribution(edited(logits.tolist(), params, PROMPT, OUTPUT), params)
    return [NUM_DRAWS * probabilities.get(token, 0.0) for token in range(VOCAB)]


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_draws_follow_the_filtered_distribution(logits: torch.Tensor, changes: dict[str, float]) -> None:
    params = replace(SamplingParams(seed=3), **changes)
    rows = [SamplingRow(params, position, PROMPT, OUTPUT) for position in range(NUM_DRAWS)]
    observed = counts(draws(logits, rows))
    assert not too_far(observed, expected_counts(logits, params))
    if changes:
        assert too_far(observed, expected_counts(logits, SamplingParams())), "the parameter did nothing"


@pytest.mark.parametrize("axis", ["seed", "choice"])
def test_seeds_and_choices_are_as_good_a_source_as_positions(logits: torch.Tensor, axis: str) -> None:
    base = SamplingParams(seed=5)
    rows = [SamplingRow(replace(base, **{axis: number}), 40, PROMPT, OUTPUT) for number in range(NUM_DRAWS)]
    assert not too_far(counts(draws(logits, rows)), expected_counts(logits, base))


def test_two_choices_are_independent_of_each_other() -> None:
    """Pairs of what two choices of one seed draw at the same positions fill the square evenly."""
    even = torch.zeros(8)
    first, second = (
        draws(even, [SamplingRow(SamplingParams(seed=1, choice=choice), at, (), ()) for at in range(NUM_DRAWS)])
        for choice in (0, 1)
    )
    pairs = Counter(zip(first, second, strict=True))
    assert not too_far([pairs[a, b] for a in range(8) for b in range(8)], [NUM_DRAWS / 64] * 64)
