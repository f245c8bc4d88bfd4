"""Penalties, bias and bans follow their formulas, touch nothing else, and leave the logits as they found them."""

import contextlib
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from model.bans import banned_ids
from model.dry import Repetitions
from model.history import SPARE, TokenHistory
from model.penalties import LARGEST, Edits, wants_history
from model.sampling_params import SamplingParams
from tests.helpers.reference_sampler import edited

VOCAB = 10
NEUTRAL = SamplingParams()


def history_of(prompt: list[int], output: list[int]) -> TokenHistory:
    history = TokenHistory(prompt)
    history.update(output)
    return history


def repetitions_of(prompt: list[int], output: list[int], params: SamplingParams) -> Repetitions:
    found = Repetitions(prompt, params.dry_sequence_breakers)
    found.update(output)
    return found


def changed(logits: Tensor, params: SamplingParams, prompt: list[int], output: list[int]) -> Tensor:
    """What one row looks like while its edits are applied."""
    edits = Edits(logits.shape[-1])
    edits.penalise(0, params, history_of(prompt, output))
    edits.subtract(0, *repetitions_of(prompt, output, params).penalties(params))
    edits.bias(0, params.logit_bias, banned_ids(params, prompt, output))
    if params.allowed_token_ids:
        edits.keep_only(0, params.allowed_token_ids)
    with edits.applied(logits[None]):
        return logits.clone()


def test_repetition_divides_positive_and_multiplies_negative_logits_of_prompt_and_output() -> None:
    logits = torch.tensor([2.0, -2.0, 2.0, -2.0, 0.0, 1.0])
    seen = changed(logits, replace(NEUTRAL, repetition_penalty=4.0), [0, 1, 0, 4], [2, 3, 3])
    assert seen.tolist() == [0.5, -8.0, 0.5, -8.0, 0.0, 1.0]


def test_presence_and_frequency_count_the_output_only() -> None:
    logits = torch.zeros(5)
    params = replace(NEUTRAL, presence_penalty=1.0, frequency_penalty=0.25)
    assert changed(logits, params, [0, 1, 1, 1], [1, 2, 2, 2]).tolist() == [0.0, -1.25, -1.75, 0.0, 0.0]


def test_negative_penalties_encourage() -> None:
    params = replace(NEUTRAL, presence_penalty=-1.0, frequency_penalty=-0.5)
    assert changed(torch.zeros(3), params, [], [2, 2]).tolist() == [0.0, 0.0, 2.0]


def test_repetition_comes_before_the_other_penalties_and_bias_last() -> None:
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=3.0, logit_bias={0: 10.0})
    assert changed(torch.tensor([4.0, 4.0]), params, [], [0]).tolist() == [4.0 / 2 - 3 + 10, 4.0]


@pytest.mark.parametrize(("generated", "banned"), [(0, True), (2, True), (3, False), (9, False)])
def test_stop_tokens_are_impossible_until_min_tokens_were_generated(generated: int, banned: bool) -> None:
    params = SamplingParams(min_tokens=3, stop_token_ids=(-1, 1, 4, VOCAB + 5), logit_bias={1: 100.0})
    row = changed(torch.zeros(VOCAB), params, [], [2] * generated)
    assert row.isinf().nonzero().flatten().tolist() == ([1, 4] if banned else [])
    assert row[1] == (-math.inf if banned else 100.0)


def test_without_min_tokens_nothing_is_banned() -> None:
    assert not changed(torch.zeros(VOCAB), SamplingParams(stop_token_ids=(1, 2)), [], []).any()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_visible(value: float) -> None:
    params = SamplingParams(
        repetition_penalty=2.0,
        frequency_penalty=1.0,
        logit_bias={0: -100.0},
        min_tokens=5,
        stop_token_ids=(0,),
        dry_multiplier=1.0,
        dry_allowed_length=1,
        allowed_token_ids=(1,),
    )
    row = changed(torch.tensor([value, 1.0]), params, [0], [0])
    assert math.isnan(row[0]) if value != -math.inf else row[0] == -math.inf


@pytest.mark.parametrize(("logit", "expected"), [(LARGEST, LARGEST), (-LARGEST, -LARGEST)])
def test_what_was_finite_stays_finite(logit: float, expected: float) -> None:
    params = SamplingParams(repetition_penalty=0.001 if logit > 0 else 10.0, logit_bias={0: math.copysign(1e38, logit)})
    assert changed(torch.tensor([logit, 0.0]), params, [0], [])[0].item() == expected


def test_the_logits_come_back_bit_for_bit_also_after_an_error() -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(0))
    logits[1, 3] = math.nan
    before = logits.numpy().tobytes()
    edits = Edits(VOCAB)
    for row in range(3):
        params = SamplingParams(repetition_penalty=1.3, logit_bias={3: 5.0, 4: -100.0})
        edits.penalise(row, params, history_of([3, 4, 5], [5, 6]))
        edits.bias(row, params.logit_bias, (7,))
        edits.subtract(row, np.array([3, 8]), np.array([1.5, 2.5]))
        edits.keep_only(row, [3, 4, 8])
    with contextlib.suppress(RuntimeError), edits.applied(logits):
        assert logits.numpy().tobytes() != before
        raise RuntimeError
    assert logits.numpy().tobytes() == before


def test_each_row_gets_its_own_edits() -> None:
    logits = torch.zeros(3, VOCAB)
    edits = Edits(VOCAB)
    edits.bias(2, {0: 1.0}, ())
    edits.bias(0, {VOCAB - 1: 2.0}, ())
    with edits.applied(logits):
        assert logits.nonzero().tolist() == [[0, VOCAB - 1], [2, 0]]


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_a_bias_on_an_id_that_does_not_exist_is_not_let_through(token: int) -> None:
    with pytest.raises(AssertionError, match=str(VOCAB)):
        Edits(VOCAB).bias(0, {token: 1.0}, ())


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture_agrees_with_plain_python(seed: int) -> None:
    random = np.random.default_rng(seed)
    logits = torch.from_numpy(5 * random.standard_normal(40).astype(np.float32))
    params = SamplingParams(
        repetition_penalty=float(random.choice([1, 0.7, 1.2])),
        presence_penalty=float(random.choice([0, -1.5, 0.3])),
        frequency_penalty=float(random.choice([0, -0.1, 2])),
        logit_bias={int(token): float(random.normal()) for token in random.integers(0, 40, 5)},
        min_tokens=int(random.integers(0, 20)),
        stop_token_ids=(3, 5),
        dry_multiplier=float(random.choice([0, 2])),
        dry_allowed_length=1,
        bad_words=((1,), (2, 3)),
        allowed_token_ids=(0, 1, 2, 3, 30, 31) if seed % 3 == 0 else (),
    )
    prompt, output = (random.integers(0, 40, int(size)).tolist() for size in random.integers(0, 30, 2))
    assert changed(logits, params, prompt, output).tolist() == edited(logits.tolist(), params, prompt, output)


def test_only_penalties_need_a_history() -> None:
    assert not wants_history(SamplingParams(logit_bias={1: 2.0}, min_tokens=4))
    for name, value in (("repetition_penalty", 1.1), ("presence_penalty", -0.1), ("frequency_penalty", 0.1)):
        assert wants_history(replace(NEUTRAL, **{name: value}))


def test_a_history_that_grew_with_its_output_equals_one_made_at_once() -> None:
    random = np.random.default_rng(1)
    prompt = random.integers(0, 500, 40).tolist()
    output = random.integers(0, 500, 5 * SPARE).tolist()
    grown = TokenHistory(prompt)
    for length in range(len(output) + 1):
        grown.update(output[:length])
    at_once = history_of(prompt, output)
    seen = dict(zip(grown.ids.tolist(), grown.counts.tolist(), strict=True))
    assert seen == dict(zip(at_once.ids.tolist(), at_once.counts.tolist(), strict=True))
    assert seen == {token: Counter(output)[token] for token in set(prompt) | set(output)}


def test_an_output_that_shrinks_is_a_fault_of_the_caller() -> None:
    history = history_of([], [1, 2])
    with pytest.raises(AssertionError, match="shrank"):
        history.update([1])


def test_what_is_not_allowed_is_impossible_and_the_rest_untouched() -> None:
    row = changed(torch.tensor([3.0, 2.0, 1.0, math.nan]), SamplingParams(allowed_token_ids=(1, 1)), [], [])
    assert row[:3].tolist() == [-math.inf, 2.0, -math.inf]
    assert row[3].isnan()
