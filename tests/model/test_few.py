"""The draw among the few best, against the slow sampler in plain Python and the filters over whole rows."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from model.few import choose_few
from model.random import uniform
from model.sampling_params import SamplingParams
from tests.helpers.reference_sampler import distribution, draw


def chosen(logits: list[float], params: SamplingParams, number: float) -> int:
    ids = sorted(range(len(logits)), key=lambda token: (-logits[token], token))[: params.top_k]
    return ids[choose_few(ids, [logits[token] for token in ids], params, number)]


def random_params(rng: Random) -> SamplingParams:
    return SamplingParams(
        temperature=rng.choice([1e-6, 0.3, 1.0, 1.0, 5.0]),
        top_k=rng.choice([1, 2, 5, 40, 64]),
        top_p=rng.choice([1.0, 1.0, 0.95, 0.5, 1e-9]),
        min_p=rng.choice([0.0, 0.0, 0.05, 0.3, 1.0]),
    )


@pytest.mark.parametrize("seed", range(20))
def test_it_draws_what_plain_python_draws(seed: int) -> None:
    rng = Random(seed)
    for position in range(40):
        logits = [float(np.float32(rng.gauss(0, 3))) for _ in range(rng.choice([1, 3, 64, 200]))]
        if seed % 2:
            logits = [float(round(each)) for each in logits]  # ties
        params = random_params(rng)
        number = uniform(seed, 0, position)
        assert chosen(logits, params, number) == draw(distribution(logits, params), number), (params, logits)


def test_among_equals_the_lowest_ids_are_kept_and_drawn_evenly_in_order_of_their_ids() -> None:
    params = SamplingParams(top_k=4)
    assert [chosen([0.0] * 9, params, number / 8) for number in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("temperature", [1e-45, 1e-40, 1e-30, 1e-6, 1.0])
@pytest.mark.parametrize("scale", [1.0, 1e30, 3e38])
def test_extremes_raise_nothing_and_give_the_best(temperature: float, scale: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=3, top_p=0.99)
    assert chosen([-scale, 50 * min(scale, 1e36), -scale], params, 0.999999) == 1


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
def test_something_is_always_drawn(number: float) -> None:
    for top_p in (1.0, 1 - 2**-53, 1e-300):
        assert chosen([1.0, 0.99], replace(SamplingParams(top_k=2), top_p=top_p), number) in (0, 1)
