"""A mask bans exactly the tokens whose bits are not set, and leaves no trace."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.masks import Mask, banned, biases
from model.sampling import Sampler, SamplingRow
from model.sampling_params import SamplingParams

VOCAB = 77  # no multiple of 8 or 32


def mask_of(*tokens: int, words: int = 3) -> Mask:
    mask = np.zeros(words, dtype=np.int32)
    for token in tokens:
        mask.view(np.uint8)[token // 8] |= 1 << token % 8
    return mask


def row(params: SamplingParams, mask: Mask | None = None, *, output: tuple[int, ...] = ()) -> SamplingRow:
    return SamplingRow(params, 5, (1, 2), output, mask)


def logits(rows: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def allowed(values: NDArray[np.float32]) -> list[int]:
    return np.flatnonzero(values == 0).tolist()


def test_bit_t_of_the_words_is_token_t() -> None:
    mask = np.array([1 << 3, -(2**31), 1 << 12], dtype=np.int32)
    assert allowed(biases(mask, VOCAB)) == [3, 63, 76]


def test_tokens_beyond_a_short_mask_are_banned() -> None:
    values = biases(mask_of(0, 31, words=1), VOCAB)
    assert values.shape == (VOCAB,)
    assert allowed(values) == [0, 31]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_k", [0, 2, 70])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.5}, {"min_p": 0.9}])
def test_only_allowed_tokens_are_chosen(temperature: float, top_k: int, filters: dict[str, float]) -> None:
    mask = mask_of(8, 40, 76)
    chosen = {
        Sampler()
        .sample(logits(seed=seed), [row(SamplingParams(temperature, top_k, seed=seed, **filters), mask)])[0]
        .token
        for seed in range(40)
    }
    assert chosen <= {8, 40, 76}
    assert len(chosen) > 1


def test_one_allowed_token_is_chosen_however_unlikely() -> None:
    values = logits()
    values[0, 50] = -1e30
    (got,) = Sampler().sample(values, [row(SamplingParams(1.0, seed=3), mask_of(50))])
    assert (got.token, got.failed) == (50, False)


def test_neighbours_get_the_same_bits_and_the_logits_come_back() -> None:
    values = logits(rows=5)
    before = values.clone()
    params = [SamplingParams(t, seed=7, num_logprobs=3, choice=i) for i, t in enumerate((0.0, 1.0, 0.7, 0.0, 1.0))]
    alone = [Sampler().sample(values[i : i + 1].clone(), [row(p)])[0] for i, p in enumerate(params)]
    masks = [None, mask_of(3, 4), None, mask_of(60), None]
    together = Sampler().sample(values, [row(p, m) for p, m in zip(params, masks, strict=True)])
    assert [together[i] for i in (0, 2, 4)] == [alone[i] for i in (0, 2, 4)]
    bound = [Sampler().sample(values[i : i + 1].clone(), [row(params[i], masks[i])])[0] for i in (1, 3)]
    assert [together[i] for i in (1, 3)] == bound
    assert together[3].token == 60
    assert torch.equal(values, before)


def test_logprobs_are_those_of_the_raw_distribution() -> None:
    free = Sampler().sample(logits(), [row(SamplingParams(0.0, num_logprobs=2))])[0]
    (bound,) = Sampler().sample(logits(), [row(SamplingParams(0.0, num_logprobs=2), mask_of(11))])
    assert (bound.top_ids, bound.top_logprobs) == (free.top_ids, free.top_logprobs)
    assert bound.logprob == pytest.approx(float(torch.log_softmax(logits()[0].double(), 0)[11]), abs=1e-5)


def test_an_empty_mask_chooses_nothing() -> None:
    assert Sampler().sample(logits(), [row(SamplingParams(0.0), mask_of())])[0].failed


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_banned_token_that_is_not_finite_is_still_seen(broken: float) -> None:
    values = logits()
    values[0, 9] = broken
    assert Sampler().sample(values, [row(SamplingParams(0.0), mask_of(8))])[0].failed


def test_with_a_mask_stop_tokens_are_its_affair_also_before_min_tokens() -> None:
    params = SamplingParams(0.0, min_tokens=5, stop_token_ids=(8,), logit_bias={40: -3.0})
    assert Sampler().sample(logits(), [row(params, mask_of(8))])[0].token == 8


def test_a_masked_row_needs_its_whole_logits() -> None:
    assert row(SamplingParams(0.0)).wish.whole is False
    assert row(SamplingParams(0.0), mask_of(1)).wish.whole


def test_banned_rows_are_copies_in_order_and_the_logits_stay() -> None:
    values = logits(rows=3)
    before = values.clone()
    copies = banned(values, [(2, mask_of(1, 70)), (0, mask_of(5))])
    assert torch.equal(values, before)
    assert [torch.isfinite(copy).nonzero()[:, 0].tolist() for copy in copies] == [[1, 70], [5]]
    assert copies[0, 70] == values[2, 70]
    assert banned(values, []).shape == (0, VOCAB)
