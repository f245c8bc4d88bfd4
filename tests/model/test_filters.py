"""top_k, top_p, min_p and the draw agree with a sampler in plain Python, at every edge."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from model.filters import RowWorkspace, choose, kept_ids, total
from model.ranking import TILE, Values
from model.sampling_params import SamplingParams
from tests.helpers.reference_sampler import distribution, draw

VOCAB = 700
LAST = 1 - 2.0**-53  # the largest number that a uniform can be


def weights_of(logits: list[float], temperature: float = 1.0) -> Values:
    work = RowWorkspace(len(logits), torch.device("cpu"))
    work.shift(torch.tensor(logits, dtype=torch.float32), max(logits))
    return work.weigh(temperature)


def logits_of(kind: str, seed: int) -> list[float]:
    random = np.random.default_rng(seed)
    spread = random.standard_normal(VOCAB)
    row = {
        "spread": 3 * spread,
        "flat": 0.1 * spread,
        "tied": spread.round(),
        "equal": 0 * spread,
        "peaked": np.where(np.arange(VOCAB) == 333, 40.0, spread),
        "masked": np.where(random.random(VOCAB) < 0.02, spread, -np.inf),
        "two": np.where(np.isin(np.arange(VOCAB), (3, 600)), 1.0, -np.inf),
    }[kind]
    return [float(each) for each in row.astype(np.float32)]


KINDS = ["spread", "flat", "tied", "equal", "peaked", "masked", "two"]
FILTERS = [
    {"top_k": 2},
    {"top_k": 40},
    {"top_k": 300},
    {"top_k": VOCAB},
    {"top_k": 10**9},
    {"top_p": 1e-9},
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"top_p": 0.9999},
    {"min_p": 0.001},
    {"min_p": 0.5},
    {"min_p": 1.0},
    {"top_k": 50, "top_p": 0.8},
    {"top_k": 300, "top_p": 0.99, "min_p": 0.2},
    {"top_p": 0.95, "min_p": 0.1},
    {"typical_p": 0.2},
    {"typical_p": 0.9},
    {"typical_p": 0.6, "top_k": 50, "top_p": 0.9, "min_p": 0.01},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_the_filters_keep_what_they_are_defined_to_keep(
    kind: str, filters: dict[str, float], temperature: float
) -> None:
    for seed in range(3):
        logits = logits_of(kind, seed)
        params = replace(SamplingParams(temperature=temperature), **filters)
        expected = distribution(logits, params)
        assert kept_ids(weights_of(logits, temperature), params).tolist() == list(expected)


def test_ties_at_the_border_go_to_the_lowest_ids() -> None:
    weights = weights_of([1.0, 2.0, 1.0, 2.0, 1.0, 1.0])
    assert kept_ids(weights, SamplingParams(top_k=3)).tolist() == [0, 1, 3]
    # 2.0 has 0.289 of the mass each, so two of them are 0.577 and the third is the first 1.0
    assert kept_ids(weights, SamplingParams(top_p=0.6)).tolist() == [0, 1, 3]
    assert kept_ids(weights, SamplingParams(top_p=0.5)).tolist() == [1, 3]
    assert kept_ids(weights, SamplingParams(top_p=1e-300)).tolist() == [1]


def test_top_p_looks_at_what_top_k_left() -> None:
    logits = [math.log(each) for each in (0.4, 0.3, 0.2, 0.1)]
    assert kept_ids(weights_of(logits), SamplingParams(top_p=0.5)).tolist() == [0, 1]
    # of the two best, the first has 4/7 of the mass
    assert kept_ids(weights_of(logits), SamplingParams(top_k=2, top_p=0.5)).tolist() == [0]


def test_min_p_is_relative_to_the_best_token_and_comes_last() -> None:
    logits = [math.log(each) for each in (0.5, 0.26, 0.24)]
    assert kept_ids(weights_of(logits), SamplingParams(min_p=0.5)).tolist() == [0, 1]
    # top_p needs two tokens to hold 0.6 of all; of what min_p would leave first, 0.65 is the best token's share already
    assert kept_ids(weights_of(logits), SamplingParams(top_p=0.6, min_p=0.5)).tolist() == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filters", [{}, {"top_k": 40}, {"top_p": 0.9}, {"min_p": 0.01}], ids=str)
def test_a_draw_is_the_token_whose_share_the_number_falls_in(kind: str, filters: dict[str, float]) -> None:
    logits = logits_of(kind, 1)
    params = replace(SamplingParams(temperature=0.9), **filters)
    expected = distribution(logits, params)
    weights = weights_of(logits, 0.9)
    for uniform in [0.0, *np.random.default_rng(5).random(200).tolist(), LAST]:
        assert choose(weights, params, uniform) == draw(expected, uniform)


@pytest.mark.parametrize("place", [0, 1, TILE - 1, TILE, VOCAB - 1])
@pytest.mark.parametrize("uniform", [0.0, 0.5, LAST])
def test_what_has_no_weight_is_never_drawn(place: int, uniform: float) -> None:
    logits = [-math.inf] * VOCAB
    logits[place] = -40.0
    for params in (SamplingParams(), SamplingParams(top_k=5), SamplingParams(top_p=0.5), SamplingParams(min_p=0.1)):
        assert choose(weights_of(logits), params, uniform) == place


def test_a_tiny_temperature_leaves_the_best_token() -> None:
    logits = logits_of("spread", 0)
    for temperature in (1e-6, 1e-30, 1e-300):
        weights = weights_of(logits, temperature)
        assert choose(weights, SamplingParams(), LAST) == logits.index(max(logits))


def test_weights_are_the_exponentials_and_the_padding_has_none() -> None:
    logits = logits_of("spread", 2)
    weights = weights_of(logits, 0.7)
    top = max(logits)
    expected = [math.exp((each - top) / 0.7) for each in logits]
    np.testing.assert_allclose(weights[:VOCAB], expected, rtol=5e-6)
    assert len(weights) == 6 * TILE
    assert not weights[VOCAB:].any()
    assert weights[logits.index(top)] == 1.0
    assert total(weights) == pytest.approx(math.fsum(expected), rel=1e-6)


def test_a_workspace_forgets_the_row_before() -> None:
    work = RowWorkspace(VOCAB, torch.device("cpu"))
    first, second = (torch.tensor(logits_of(kind, 3)) for kind in ("flat", "spread"))
    for row in (first, second):
        work.shift(row, float(row.max()))
        kept = work.weigh(1.0).copy()
    fresh = RowWorkspace(VOCAB, torch.device("cpu"))
    fresh.shift(second, float(second.max()))
    assert kept.tobytes() == fresh.weigh(1.0).tobytes()
