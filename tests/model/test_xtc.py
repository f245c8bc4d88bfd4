"""XTC removes the likeliest but the least of them, as often as asked, and doesn't touch the draw otherwise."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model.random import uniform
from model.sampling import Sampler, SamplingRow
from model.sampling_params import SamplingParams
from model.xtc import exclude_top


def left(*weights: float, threshold: float) -> list[int]:
    return exclude_top(np.array(weights, np.float32), threshold).tolist()


def test_of_those_at_or_above_the_threshold_the_least_likely_stays() -> None:
    assert left(1, 4, 3, 2, threshold=0.2) == [0, 3]
    assert left(1, 4, 3, 2, threshold=0.05) == [0]
    assert left(1, 1, 2, threshold=0.25) == [1]


@pytest.mark.parametrize("threshold", [0.41, 0.5, 1.0])
def test_a_lone_top_choice_stays(threshold: float) -> None:
    assert left(1, 4, 3, 2, threshold=threshold) == [0, 1, 2, 3]


def test_of_equals_the_last_stays() -> None:
    assert left(3, 3, 3, 1, threshold=0.2) == [2, 3]


LOGITS = torch.tensor([[3.0, 2.9, 2.8, 0.0, 0.0, 0.0]])
PARAMS = SamplingParams(xtc_probability=1.0, xtc_threshold=0.1)


def draws(params: SamplingParams, count: int = 300) -> list[int]:
    rows = [SamplingRow(params, position, (), ()) for position in range(count)]
    return [each.token for each in Sampler().sample(LOGITS.repeat(count, 1), rows)]


def test_with_certainty_the_top_choices_are_never_said() -> None:
    assert set(draws(PARAMS)) == {2, 3, 4, 5}


def test_it_acts_as_often_as_asked_by_a_number_of_its_own() -> None:
    half = replace(PARAMS, xtc_probability=0.5)
    without, always, sometimes = draws(replace(PARAMS, xtc_probability=0.0)), draws(PARAMS), draws(half)
    for position, token in enumerate(sometimes):
        acts = uniform(0, 0, position, stream=1) < 0.5
        assert token == (always if acts else without)[position]
    assert 100 < sum(uniform(0, 0, position, stream=1) < 0.5 for position in range(300)) < 200


def test_its_number_is_a_pure_function_of_seed_choice_and_position() -> None:
    half = replace(PARAMS, xtc_probability=0.5, seed=3)
    assert draws(half) == draws(half)
    assert draws(half) != draws(replace(half, seed=4))
    assert draws(half) != draws(replace(half, choice=1))
    numbers = [uniform(1, 0, position, stream=stream) for position in range(500) for stream in (0, 1)]
    assert len(set(numbers)) == 1000
    assert abs(float(np.corrcoef(numbers[::2], numbers[1::2])[0, 1])) < 0.15


def test_greedy_does_not_care() -> None:
    assert set(draws(replace(PARAMS, temperature=0.0), 10)) == {0}
