"""From a body to the engine's requests: lengths, limits, defaults, seeds, end tokens."""

from dataclasses import replace

import pytest

from server.api.chat import prepare as prepare_chat
from server.api.completions import prepare
from server.api.jobs import Job
from server.api.serving import Limits, SamplingDefaults
from server.engine.errors import InvalidValue, PromptTooLong
from tests.helpers.api_world import make_world

LIMITS = Limits(context_tokens=50, cache_tokens=1000, max_sequences=8)


def job(raw: str, *, limits: Limits = LIMITS, defaults: SamplingDefaults | None = None, chat: bool = False) -> Job:
    model = make_world(defaults=defaults).serving.model
    return (prepare_chat if chat else prepare)("id", raw.encode(), model, limits)


def test_completions_get_16_tokens_by_default() -> None:
    assert job('{"prompt": "hi"}').requests[0].max_tokens == 16
    assert job('{"prompt": "hi", "max_tokens": null}').requests[0].max_tokens == 16


def test_the_default_length_shrinks_to_what_is_left_of_the_context() -> None:
    prompt = "x" * 40  # and <bos>
    assert job(f'{{"prompt": "{prompt}"}}').requests[0].max_tokens == 9


def test_chat_may_fill_the_context_by_default() -> None:
    request = job('{"messages": [{"role": "user", "content": "hi"}]}', chat=True).requests[0]
    assert request.max_tokens == 50 - len(request.prompt)


def test_either_name_of_the_length_counts_on_chat_and_both_are_refused() -> None:
    messages = '"messages": [{"role": "user", "content": "hi"}]'
    assert job(f'{{{messages}, "max_completion_tokens": 3}}', chat=True).requests[0].max_tokens == 3
    assert job(f'{{{messages}, "max_tokens": 4}}', chat=True).requests[0].max_tokens == 4
    with pytest.raises(InvalidValue, match="max_completion_tokens"):
        job(f'{{{messages}, "max_tokens": 3, "max_completion_tokens": 3}}', chat=True)


@pytest.mark.parametrize(
    ("prompt_tokens", "asked", "fits"),
    [(10, 40, True), (10, 41, False), (49, 1, True), (50, 1, False), (51, 1, False), (1, 2**31 - 1, False)],
)
def test_an_explicit_length_fits_exactly_or_is_refused_with_all_numbers(
    prompt_tokens: int, asked: int, fits: bool
) -> None:
    raw = f'{{"prompt": {[7] * prompt_tokens}, "max_tokens": {asked}}}'
    if fits:
        assert job(raw).requests[0].max_tokens == asked
        return
    with pytest.raises(PromptTooLong) as found:
        job(raw)
    assert found.value.param == "prompt"
    assert found.value.code == "context_length_exceeded"
    for number in (50, prompt_tokens, asked):
        assert str(number) in found.value.message


@pytest.mark.parametrize("prompt_tokens", [50, 51, 3000])
def test_a_prompt_that_leaves_no_room_is_refused_with_any_default(prompt_tokens: int) -> None:
    with pytest.raises(PromptTooLong, match=f"has 50 tokens.* {prompt_tokens} for the prompt and at least 1"):
        job(f'{{"prompt": {[7] * prompt_tokens}}}')


def test_a_cache_smaller_than_the_context_is_the_limit_and_is_named() -> None:
    small = replace(LIMITS, cache_tokens=32)
    assert job('{"prompt": [7, 7], "max_tokens": 30}', limits=small).requests[0].max_tokens == 30
    with pytest.raises(PromptTooLong, match="KV cache holds at most 32 tokens"):
        job('{"prompt": [7, 7], "max_tokens": 31}', limits=small)


def test_min_tokens_must_fit_into_the_answer() -> None:
    assert job('{"prompt": "a", "max_tokens": 5, "min_tokens": 5}').requests[0].params.min_tokens == 5
    with pytest.raises(InvalidValue, match="min_tokens is 6, but the answer ends after 5"):
        job('{"prompt": "a", "max_tokens": 5, "min_tokens": 6}')


def test_of_several_prompts_every_one_must_fit() -> None:
    with pytest.raises(PromptTooLong, match="60 for the prompt"):
        job(f'{{"prompt": [[1], {[1] * 60}]}}')


def test_the_model_s_end_tokens_and_the_user_s_end_the_answer() -> None:
    assert job('{"prompt": "a"}').requests[0].params.stop_token_ids == (257, 259)
    assert job('{"prompt": "a", "stop_token_ids": [5, 257]}').requests[0].params.stop_token_ids == (5, 257, 259)


def test_ignore_eos_leaves_only_the_user_s() -> None:
    assert job('{"prompt": "a", "ignore_eos": true}').requests[0].params.stop_token_ids == ()
    raw = '{"prompt": "a", "ignore_eos": true, "stop_token_ids": [259]}'
    assert job(raw).requests[0].params.stop_token_ids == (259,)


def test_prompts_times_n_become_one_request_each_in_order() -> None:
    made = job('{"prompt": [[1], [2]], "n": 3, "seed": 9}')
    assert [(r.prompt, r.params.choice) for r in made.requests] == [((p,), c) for p in (1, 2) for c in (0, 1, 2)]
    assert {request.params.seed for request in made.requests} == {9}
    assert len({request.id for request in made.requests}) == 6
    assert made.choices_per_prompt == 3


def test_too_many_sequences_are_refused_with_both_numbers() -> None:
    assert len(job('{"prompt": ["a", "b"], "n": 4}').requests) == 8
    with pytest.raises(InvalidValue, match="9 sequences; one request may have 8"):
        job('{"prompt": ["a", "b", "c"], "n": 3}')


def test_without_a_seed_every_request_draws_its_own() -> None:
    seeds = {job('{"prompt": "a"}').seed for _ in range(20)}
    assert len(seeds) == 20
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_checkpoint_s_defaults_count_where_the_request_says_nothing() -> None:
    own = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20, min_p=0.01, repetition_penalty=1.1)
    params = job('{"prompt": "a"}', defaults=own).requests[0].params
    assert (params.temperature, params.top_p, params.top_k, params.min_p, params.repetition_penalty) == (
        *(0.6, 0.95, 20),
        *(0.01, 1.1),
    )
    raw = '{"prompt": "a", "temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1}'
    params = job(raw, defaults=own).requests[0].params
    assert (params.temperature, params.top_p, params.top_k, params.min_p, params.repetition_penalty) == (0, 1, 0, 0, 1)


def test_openai_s_defaults_count_where_the_checkpoint_says_nothing_either() -> None:
    params = job('{"prompt": "a"}').requests[0].params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (1.0, 1.0, 0, 0.0)


@pytest.mark.parametrize(
    ("stated", "made"),
    [
        ({}, SamplingDefaults()),
        ({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "eos_token_id": 5}, SamplingDefaults(0.6, 0.95, 20)),
        ({"temperature": None, "top_p": "high", "top_k": -1}, SamplingDefaults()),
        ({"temperature": 100, "repetition_penalty": 0}, SamplingDefaults()),
    ],
)
def test_a_checkpoint_s_nonsense_is_like_saying_nothing(stated: dict[str, object], made: SamplingDefaults) -> None:
    assert SamplingDefaults.of(stated) == made


def test_a_long_prompt_is_cut_to_its_last_tokens_and_what_is_echoed_too() -> None:
    made = job('{"prompt": ["abcdef", "gh"], "truncate_prompt_tokens": 3, "echo": true}')
    assert made.requests[0].prompt == tuple(b"def")
    assert made.requests[1].prompt == (256, *b"gh")
    assert made.echoes == ("def", "gh")
    assert job(f'{{"prompt": {[7] * 60}, "truncate_prompt_tokens": 10}}').requests[0].prompt == (7,) * 10


def test_truncation_makes_a_prompt_fit_on_chat_too() -> None:
    long = "x" * 500
    made = job(f'{{"messages": [{{"role": "user", "content": "{long}"}}], "truncate_prompt_tokens": 20}}', chat=True)
    assert len(made.requests[0].prompt) == 20


def test_max_tokens_0_is_for_scoring_a_prompt() -> None:
    assert job('{"prompt": "hi", "max_tokens": 0, "echo": true}').requests[0].max_tokens == 0
    assert job(f'{{"prompt": {[7] * 50}, "max_tokens": 0, "echo": true}}').requests[0].max_tokens == 0
    with pytest.raises(PromptTooLong):
        job(f'{{"prompt": {[7] * 51}, "max_tokens": 0, "echo": true}}')
    with pytest.raises(InvalidValue, match="nothing would come back"):
        job('{"prompt": "hi", "max_tokens": 0}')
    with pytest.raises(InvalidValue, match="min_tokens is 1, but the answer ends after 0"):
        job('{"prompt": "hi", "max_tokens": 0, "echo": true, "min_tokens": 1}')
