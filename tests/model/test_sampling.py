"""The sampler as the engine sees it: rows of logits in, tokens and log-probabilities out."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from model.random import uniform
from model.sampling import Sampled, Sampler, SamplingRow
from model.sampling_params import SamplingParams
from tests.helpers.reference_sampler import distribution, draw, edited, log_softmax, varied_params

GREEDY = SamplingParams(temperature=0.0)


def row(
    params: SamplingParams, *, position: int = 5, prompt: Sequence[int] = (), output: Sequence[int] = ()
) -> SamplingRow:
    return SamplingRow(params, position, prompt, output)


def sample(logits: Sequence[float] | Tensor, params: SamplingParams, **where: object) -> Sampled:
    """The result of a single row."""
    (result,) = Sampler().sample(torch.as_tensor(logits, dtype=torch.float32)[None], [row(params, **where)])  # type: ignore[arg-type]
    return result


def random_logits(seed: int, vocab: int) -> Tensor:
    return 3 * torch.randn(vocab, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("vocab", [7, 128, 333, 1000])
def test_any_mixture_of_parameters_agrees_with_plain_python(vocab: int) -> None:
    random = np.random.default_rng(vocab)
    logits = torch.from_numpy(4 * random.standard_normal((60, vocab)).astype(np.float32))
    logits[::5] = logits[::5].round()  # ties
    rows = []
    for position in range(60):
        prompt, output = (random.integers(0, vocab, int(size)).tolist() for size in random.integers(0, 12, 2))
        rows.append(SamplingRow(varied_params(random, vocab), position, prompt, output))
    for each, before, result in zip(rows, logits.tolist(), Sampler().sample(logits, rows), strict=True):
        scores = edited(before, each.params, each.prompt, each.output)
        if max(scores) == -math.inf:
            assert result.failed
            continue
        where = each.params.seed, each.params.choice, each.position
        exclude = uniform(*where, stream=1) < each.params.xtc_probability
        kept = distribution(scores, each.params, exclude=exclude)
        assert result.token == draw(kept, uniform(*where)), each
        if each.params.num_logprobs is None:
            assert result.logprob is None
        else:
            assert result.logprob == pytest.approx(log_softmax(before)[result.token], abs=3e-6)


def test_greedy_takes_the_lowest_of_equals_whatever_else_is_set() -> None:
    params = replace(GREEDY, top_k=3, top_p=0.5, min_p=0.2, seed=9)
    assert sample([1.0, 7.0, 7.0, 2.0], params).token == 1


@pytest.mark.parametrize(
    "changes",
    [{"top_k": 1}, {"top_p": 0.0}, {"top_p": 1e-9}, {"temperature": 1e-6}, {"temperature": 1e-40}, {"min_p": 1.0}],
    ids=str,
)
def test_what_leaves_one_token_is_greedy(changes: dict[str, float]) -> None:
    logits = random_logits(0, 500)
    for seed in range(30):
        params = replace(SamplingParams(temperature=1.5, seed=seed), **changes)
        assert sample(logits, params).token == int(logits.argmax())


@pytest.mark.parametrize("top_k", [0, -1, 500, 10**6])
def test_a_top_k_that_is_off_or_above_the_vocabulary_changes_nothing(top_k: int) -> None:
    logits = random_logits(1, 500)
    drawn = [sample(logits, SamplingParams(temperature=1.5, top_k=top_k, seed=seed)).token for seed in range(40)]
    assert drawn == [sample(logits, SamplingParams(temperature=1.5, seed=seed)).token for seed in range(40)]
    assert len(set(drawn)) > 20


def test_penalties_and_bias_act_on_greedy_too() -> None:
    logits = [1.0, 2.0, 1.9]
    assert sample(logits, replace(GREEDY, repetition_penalty=1.2), prompt=[1]).token == 2
    assert sample(logits, replace(GREEDY, presence_penalty=0.2), prompt=[1]).token == 1
    assert sample(logits, replace(GREEDY, presence_penalty=0.2), output=[1]).token == 2
    assert sample(logits, replace(GREEDY, frequency_penalty=0.2), output=[1]).token == 2
    assert sample(logits, replace(GREEDY, logit_bias={0: 5.0})).token == 0
    assert sample(logits, replace(GREEDY, logit_bias={1: -100.0})).token == 2
    assert sample(logits, replace(GREEDY, min_tokens=1, stop_token_ids=(1,))).token == 2
    assert sample(logits, replace(GREEDY, min_tokens=1, stop_token_ids=(1,)), output=[0]).token == 1


def test_a_row_that_is_kept_counts_what_was_added_to_its_output() -> None:
    output: list[int] = []
    kept = row(replace(GREEDY, frequency_penalty=1.0), output=output)
    logits = torch.tensor([[3.0, 2.5, 0.1]])
    for _ in range(5):
        output.append(Sampler().sample(logits, [kept])[0].token)
    assert output == [0, 1, 0, 1, 0]


def test_logprobs_are_those_of_the_raw_logits() -> None:
    logits = random_logits(2, 1000)
    expected = log_softmax(logits.double().tolist())
    params = SamplingParams(
        temperature=0.3, top_k=5, repetition_penalty=1.5, logit_bias={7: 50.0}, num_logprobs=20, seed=1
    )
    result = sample(logits, params, prompt=[1, 2], output=[3])
    assert result.token == 7
    assert result.logprob == pytest.approx(expected[7], abs=2e-6)
    best = sorted(range(1000), key=lambda token: (-expected[token], token))[:20]
    assert list(result.top_ids) == best
    assert result.top_logprobs == pytest.approx([expected[token] for token in best], abs=2e-6)
    assert list(result.top_logprobs) == sorted(result.top_logprobs, reverse=True)
    assert all(each <= 0 for each in result.top_logprobs)


@pytest.mark.parametrize("count", [None, 0, 1, 20])
def test_as_many_alternatives_as_were_asked_for(count: int | None) -> None:
    result = sample(random_logits(3, 300), replace(GREEDY, num_logprobs=count))
    assert (result.logprob is None) == (count is None)
    assert len(result.top_ids) == len(result.top_logprobs) == (count or 0)
    if count:
        assert (result.top_ids[0], result.top_logprobs[0]) == (result.token, result.logprob)


def test_equal_alternatives_come_by_lowest_id() -> None:
    result = sample([0.0, 3.0, 1.0, 3.0, 1.0, 1.0], replace(GREEDY, num_logprobs=4))
    assert result.top_ids == (1, 3, 2, 4)


def test_impossible_tokens_are_no_alternatives() -> None:
    result = sample([-math.inf, 1.0, -math.inf, 1.0], replace(GREEDY, num_logprobs=4))
    assert result.top_ids == (1, 3)
    assert result.top_logprobs == pytest.approx([math.log(0.5)] * 2)


@pytest.mark.parametrize("scale", [1e6, 1e30, 3e38])
def test_huge_logits_give_finite_answers(scale: float) -> None:
    for params in (GREEDY, SamplingParams(), SamplingParams(top_p=0.9, temperature=1e-6), SamplingParams(top_k=3)):
        result = sample([-scale, scale, 0.0, -scale], replace(params, num_logprobs=4))
        assert result.token == 1
        assert result.logprob == 0.0
        assert all(math.isfinite(each) for each in result.top_logprobs)


def test_the_least_likely_token_still_has_a_finite_logprob() -> None:
    result = sample([3e38, -3e38], SamplingParams(temperature=0.0, logit_bias={0: -3.4e38, 1: 3.4e38}, num_logprobs=0))
    assert result.token == 1
    assert result.logprob is not None
    assert math.isfinite(result.logprob)


BROKEN = {
    "nan": [1.0, math.nan, 2.0],
    "inf": [1.0, math.inf, 2.0],
    "all banned": [-math.inf] * 3,
    "all nan": [math.nan] * 3,
}
ANY = [
    GREEDY,
    SamplingParams(),
    SamplingParams(top_k=2, top_p=0.5, min_p=0.1, num_logprobs=2),
    SamplingParams(repetition_penalty=2.0, logit_bias={1: -100.0}, min_tokens=1, stop_token_ids=(1,)),
]


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("params", ANY, ids=range(len(ANY)))
def test_a_broken_row_fails_and_its_neighbours_do_not_notice(kind: str, params: SamplingParams) -> None:
    healthy = [1.0, 0.5, 2.0]
    alone = [sample(healthy, each) for each in ANY]
    logits = torch.tensor([healthy, BROKEN[kind], healthy, BROKEN[kind], healthy, healthy])
    rows = [
        row(each, prompt=[1] if each.repetition_penalty != 1 else [])
        for each in (ANY[0], params, ANY[1], params, *ANY[2:])
    ]
    results = Sampler().sample(logits, rows)
    assert [results[place] for place in (0, 2, 4, 5)] == alone
    for place in (1, 3):
        assert results[place].failed
        assert results[place].logprob is None


def test_banning_everything_fails_instead_of_breaking_the_ban() -> None:
    assert sample([1.0, 2.0], replace(GREEDY, min_tokens=1, stop_token_ids=(0, 1))).failed


def test_minus_infinity_is_never_drawn() -> None:
    logits = random_logits(4, 400)
    logits[::2] = -math.inf
    for seed in range(50):
        assert sample(logits, SamplingParams(temperature=5.0, seed=seed)).token % 2 == 1


def test_the_callers_logits_are_unchanged_afterwards() -> None:
    logits = torch.stack([random_logits(seed, 300) for seed in range(4)])
    before = logits.numpy().tobytes()
    params = SamplingParams(
        repetition_penalty=1.2, logit_bias={1: 4.0}, num_logprobs=3, min_tokens=2, stop_token_ids=(5,)
    )
    Sampler().sample(logits, [row(params, prompt=[1, 2, 3])] * 4)
    assert logits.numpy().tobytes() == before


def test_float64_logits_give_what_their_float32_rounding_gives() -> None:
    logits = torch.stack([random_logits(seed, 300) for seed in range(4)])
    rows = [row(SamplingParams(seed=seed, num_logprobs=2)) for seed in range(4)]
    assert Sampler().sample(logits.double(), rows) == Sampler().sample(logits, rows)


def test_a_view_with_gaps_is_read_right() -> None:
    wide = torch.stack([random_logits(seed, 600) for seed in range(3)])
    rows = [row(SamplingParams(seed=seed, logit_bias={2: 1.0})) for seed in range(3)]
    assert Sampler().sample(wide[:, ::2], rows) == Sampler().sample(wide[:, ::2].contiguous(), rows)


def test_logits_made_in_inference_mode_are_fine() -> None:
    with torch.inference_mode():
        logits = random_logits(0, 100)[None] + 0
    assert not Sampler().sample(logits, [row(SamplingParams(logit_bias={1: 2.0}))])[0].failed


def test_no_rows_give_no_results() -> None:
    assert Sampler().sample(torch.zeros(0, 10), []) == []


def test_a_row_for_each_row_of_logits() -> None:
    with pytest.raises(AssertionError, match="2 rows of logits for 1"):
        Sampler().sample(torch.zeros(2, 10), [row(GREEDY)])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_tokens_on_a_gpu() -> None:
    logits = torch.stack([random_logits(seed, 1000) for seed in range(32)])
    random = np.random.default_rng(0)
    rows = [row(varied_params(random, 1000), prompt=[1, 2], output=[2, 3]) for _ in range(32)]
    here, there = Sampler().sample(logits, rows), Sampler().sample(logits.cuda(), rows)
    assert [each.token for each in here] == [each.token for each in there]
