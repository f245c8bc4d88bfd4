"""Faults that servers of this kind really had, on real words: sampling, limits, crowds, cancels, figures."""

from typing import Any

import pytest

from tests.helpers.asking import CHAT, chat, complete, finish_of, same_but_for_ties, usage_of
from tests.helpers.live_server import LiveServer, at_once

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


# sampling


def test_seeds_reproduce_and_differ(smollm: LiveServer) -> None:
    def say(**fields: Any) -> str:
        return complete(smollm, "Once upon a time there was a", temperature=1, **fields).text()

    seeds = (1, 2, 3, 4)
    first = at_once(*(lambda s=s: say(seed=s) for s in seeds))
    again = at_once(*(lambda s=s: say(seed=s) for s in seeds))
    assert sum(one == other for one, other in zip(first, again, strict=True)) >= 3  # a near tie may fall otherwise
    assert len(set(first)) >= 3
    assert len(set(at_once(*[say] * 4))) >= 2


def test_greedy_ignores_the_seed(smollm: LiveServer) -> None:
    one, other = complete(smollm, "The sun is", seed=1).text(), complete(smollm, "The sun is", seed=99).text()
    assert same_but_for_ties(smollm, "The sun is", one, other)


@pytest.mark.parametrize(
    "fields",
    [
        {"top_k": 1, "temperature": 1.5},
        {"top_p": 0, "temperature": 1.0},
        {"top_p": 1e-9, "temperature": 1.0},
        {"temperature": 1e-6},
        {"min_p": 1.0, "temperature": 1.0},
    ],
)
def test_the_narrowest_filters_are_greedy(smollm: LiveServer, fields: dict[str, Any]) -> None:
    prompt = "The best way to learn is"
    greedy = complete(smollm, prompt, max_tokens=8).text()
    for said in at_once(*(lambda s=s: complete(smollm, prompt, max_tokens=8, seed=s, **fields).text() for s in (1, 2))):
        assert same_but_for_ties(smollm, prompt, greedy, said)


@pytest.mark.parametrize("top_k", [0, -1, 10**6])
def test_filters_that_are_off_leave_the_choice_open(smollm: LiveServer, top_k: int) -> None:
    said = at_once(
        *(
            lambda s=s: complete(smollm, "The best", max_tokens=6, seed=s, temperature=1.5, top_k=top_k).text()
            for s in (1, 2, 3, 4)
        )
    )
    assert len(set(said)) >= 2


# lengths and limits


@pytest.mark.parametrize("ask", [chat, complete])
def test_the_length_is_exact_and_null_is_no_length(smollm: LiveServer, ask: Any) -> None:
    one = ask(smollm, "Once upon a time", max_tokens=1)
    assert (usage_of(one)["completion_tokens"], finish_of(one)) == (1, ["length"])
    assert ask(smollm, "Once upon a time", max_tokens=None, stop=[" ", "e"]).status == 200
    assert ask(smollm, "Once upon a time", max_tokens=0).status == 400


@pytest.mark.parametrize("ask", [chat, complete])
def test_a_prompt_far_over_the_context_is_refused_with_both_numbers(smollm: LiveServer, ask: Any) -> None:
    got = ask(smollm, "hello world " * 60_000)
    assert got.status == 400
    error = got.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "8192" in error["message"]
    assert ask(smollm, "hi", max_tokens=1).status == 200


@pytest.mark.parametrize("prompt", ["", [""], [[]]])
def test_an_empty_prompt_is_the_beginning_of_a_text(smollm: LiveServer, prompt: Any) -> None:
    got = complete(smollm, prompt, max_tokens=2)
    assert usage_of(got)["prompt_tokens"] == 1
    assert usage_of(got)["completion_tokens"] == 2


# company and cache


def test_sixteen_at_once_say_what_each_says_alone(smollm: LiveServer) -> None:
    beginnings = ("The best thing about", "In the year 1990", "A recipe for", "The story of")
    prompts = [f"{a} {b}" for a in beginnings for b in ("the sea is", "a small dog and", "winter bread", "old maps")]
    alone = [complete(smollm, prompt, max_tokens=10).text() for prompt in prompts]
    together = at_once(*(lambda p=p: complete(smollm, p, max_tokens=10).text() for p in prompts))
    assert all(map(lambda p, a, b: same_but_for_ties(smollm, p, a, b), prompts, alone, together))
    assert sum(a != b for a, b in zip(alone, together, strict=True)) <= 3, "too many for near ties"


@pytest.mark.parametrize("prompt", ["A" * 16, " a" * 63, " a" * 64, " a" * 128, "The quick brown fox jumps. " * 12])
def test_a_prompt_that_is_wholly_cached_is_answered_the_same(smollm: LiveServer, prompt: str) -> None:
    first, again = complete(smollm, prompt, max_tokens=6), complete(smollm, prompt, max_tokens=6)
    assert same_but_for_ties(smollm, prompt, first.text(), again.text())
    assert usage_of(again)["completion_tokens"] > 0
    assert usage_of(again)["prompt_tokens"] == usage_of(first)["prompt_tokens"]
    assert usage_of(again)["prompt_tokens_details"]["cached_tokens"] < usage_of(again)["prompt_tokens"]


# cancels and figures


def test_clients_that_leave_free_everything_and_the_gauges_fall_by_themselves(smollm: LiveServer) -> None:
    def leave(n: int) -> None:
        body = {"messages": [{"role": "user", "content": f"Tell me a long story about {n}."}], "stream": True}
        with smollm.stream("POST", CHAT, body | {"max_tokens": 1500}) as opened:
            opened.read_events(3)
            running.append(smollm.figure("kvell_requests_running"))

    running: list[float] = []
    before = smollm.figure("kvell_generation_tokens_total")
    at_once(*(lambda n=n: leave(n) for n in range(4)))
    smollm.until_idle()
    assert max(running) >= 1
    assert smollm.figure("kvell_generation_tokens_total") - before < 400
    assert smollm.figure('kvell_kv_cache_blocks{state="used"}') == 0


def test_the_counters_rise_by_what_usage_says(smollm: LiveServer) -> None:
    names = ("kvell_generation_tokens_total", "kvell_prompt_tokens_total")
    before = [smollm.figure(name) for name in names]
    answers = [chat(smollm, f"Tell me a fact about {n}.", max_tokens=5) for n in range(2)]
    answers.append(chat(smollm, "A fact.", max_tokens=5, stream=True, stream_options={"include_usage": True}))
    usages = [usage_of(answer) for answer in answers]
    rose = [smollm.figure(name) - value for name, value in zip(names, before, strict=True)]
    assert rose == [sum(u["completion_tokens"] for u in usages), sum(u["prompt_tokens"] for u in usages)]
