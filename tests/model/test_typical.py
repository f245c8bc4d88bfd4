"""Locally typical sampling against its definition, on distributions that can be computed by hand."""

import math

import numpy as np
import pytest

from model.typical import keep_typical
from tests.helpers.reference_sampler import typical


def kept(*weights: float, share: float) -> list[int]:
    return keep_typical(np.array(weights, np.float32), share).tolist()


def test_the_token_with_the_expected_surprise_is_kept_and_not_the_likeliest() -> None:
    # entropy 1.5 bits: the tokens with 1/4 are half a bit away, the one with 1/2 too; then the first wins
    assert kept(2, 1, 1, share=0.1) == [0]
    # 0.6 and 40 times 0.01: entropy 2.15 nats; surprises 0.51 and 4.6
    assert kept(60, *[1] * 40, share=0.1) == [0]
    # 0.3 and 70 times 0.01: entropy 3.58; surprises 1.2 and 4.6, so the unlikely ones are the typical ones
    assert 0 not in kept(30, *[1] * 70, share=0.6)
    assert 0 in kept(30, *[1] * 70, share=0.75)


@pytest.mark.parametrize("share", [1e-9, 0.3, 0.999])
def test_at_least_one_token_is_kept_and_none_without_weight(share: float) -> None:
    found = kept(0, 5, 0, 1, 1, share=share)
    assert found
    assert set(found) <= {1, 3, 4}


def test_equal_tokens_are_kept_from_the_lowest_id_on() -> None:
    assert kept(1, 1, 1, 1, share=0.5) == [0, 1]
    assert kept(1, 1, 1, 1, share=0.51) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_any_distribution_agrees_with_plain_python(seed: int) -> None:
    random = np.random.default_rng(seed)
    weights = np.exp(random.normal(0, 3, 200)).astype(np.float32)
    share = float(random.choice([0.05, 0.5, 0.95]))
    ranked = list(range(200))
    assert kept(*weights.tolist(), share=share) == typical(ranked, dict(enumerate(weights.tolist())), share)


def test_the_scale_of_the_weights_does_not_matter() -> None:
    weights = np.array([5, 3, 1, 0.5], np.float32)
    assert keep_typical(weights, 0.7).tolist() == keep_typical(weights * np.float32(math.pi), 0.7).tolist()
