"""Pacing learns what a step costs and sizes the prompt pieces beside running streams by it."""

from collections.abc import Callable
from random import Random

import pytest

from server.engine.pacing import Budget, ContextCost, Pacer, pairs

TARGET_S = 0.1
FLOOR, MOST = 16, 512


def make_pacer() -> Pacer:
    return Pacer(target_s=TARGET_S, floor=FLOOR, most=MOST)


def room(pacer: Pacer, num_decoding: int, context: int = 0) -> int:
    """Tokens of the first piece of the next step."""
    return pacer.budget(num_decoding).room(context)


def feed(pacer: Pacer, cost: Callable[[int], float], *, steps: int, num_decoding: int = 4) -> list[tuple[int, float]]:
    """Run steps that are as full as the pacer lets them be: (prompt tokens, seconds) of each."""
    history = []
    for _ in range(steps):
        tokens = room(pacer, num_decoding)
        seconds = cost(tokens)
        pacer.observe(prompt_tokens=tokens, decode_tokens=num_decoding, seconds=seconds)
        history.append((tokens, seconds))
    return history


def test_before_anything_is_known_a_step_takes_the_whole_budget() -> None:
    assert room(make_pacer(), 0) == MOST
    assert room(make_pacer(), 12) == MOST - 12


def test_the_streams_tokens_come_out_of_the_same_budget() -> None:
    assert room(make_pacer(), MOST - 1) == 1
    assert room(make_pacer(), MOST + 5) == 1, "a prompt always progresses"


@pytest.mark.parametrize("base_s", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("per_token_s", [0.0002, 0.001, 0.003])
def test_the_gap_settles_below_the_target_and_near_it(base_s: float, per_token_s: float) -> None:
    pacer = make_pacer()
    pacer.observe(prompt_tokens=200, decode_tokens=0, seconds=200 * per_token_s)
    pacer.observe(prompt_tokens=0, decode_tokens=4, seconds=base_s)

    history = feed(pacer, lambda tokens: base_s + per_token_s * tokens, steps=30)

    assert all(seconds <= TARGET_S for _, seconds in history), "known costs never miss the target"
    tokens, seconds = history[-1]
    assert seconds >= 0.7 * TARGET_S or tokens in (FLOOR, MOST - 4), "nor is the target a reason to be idle"


def test_a_base_that_was_never_seen_alone_does_no_lasting_harm() -> None:
    pacer = make_pacer()  # prompts arrive all the time: no step without prompt tokens tells what the streams cost
    history = feed(pacer, lambda tokens: 0.06 + 0.001 * tokens, steps=40)
    assert all(seconds <= TARGET_S for _, seconds in history[6:])
    assert history[-1][1] >= 0.7 * TARGET_S


def test_streams_that_got_dearer_are_noticed_within_a_few_steps() -> None:
    pacer = make_pacer()
    feed(pacer, lambda tokens: 0.01 + 0.001 * tokens, steps=30)
    later = feed(pacer, lambda tokens: 0.05 + 0.001 * tokens, steps=10)
    assert all(seconds <= TARGET_S for _, seconds in later[4:])
    assert all(seconds <= 1.4 * TARGET_S for _, seconds in later), "what they cost more is missed by once"


def test_a_growing_context_is_followed() -> None:
    pacer, done, worst = make_pacer(), 0, 0.0
    pacer.observe(prompt_tokens=64, decode_tokens=0, seconds=0.064)
    pacer.observe(prompt_tokens=0, decode_tokens=4, seconds=0.02)
    while done < 8000:
        tokens = room(pacer, 4)
        seconds = 0.02 + tokens * (0.001 + 2e-7 * done)  # attention costs more the more there is to attend to
        pacer.observe(prompt_tokens=tokens, decode_tokens=4, seconds=seconds)
        done, worst = done + tokens, max(worst, seconds)
    assert worst <= TARGET_S


def test_prompts_progress_by_the_floor_when_the_streams_alone_exceed_the_target() -> None:
    pacer = make_pacer()
    pacer.observe(prompt_tokens=64, decode_tokens=0, seconds=0.5)
    pacer.observe(prompt_tokens=0, decode_tokens=4, seconds=3 * TARGET_S)
    assert room(pacer, 4) == FLOOR


def test_without_streams_a_step_stays_under_a_second() -> None:
    pacer = make_pacer()
    pacer.observe(prompt_tokens=MOST, decode_tokens=0, seconds=8.0)
    tokens = room(pacer, 0)
    assert tokens * 8.0 / MOST <= 1.0
    assert tokens >= FLOOR


def test_a_fast_machine_gets_all_it_asked_for() -> None:
    pacer = make_pacer()
    pacer.observe(prompt_tokens=MOST, decode_tokens=0, seconds=0.001)
    assert room(pacer, 0) == MOST


def test_one_slow_step_does_not_stall_the_prompts() -> None:
    pacer = make_pacer()
    feed(pacer, lambda tokens: 0.01 + 0.001 * tokens, steps=20)
    before = room(pacer, 4)
    pacer.observe(prompt_tokens=before, decode_tokens=4, seconds=60.0)  # the machine was busy with something else
    assert room(pacer, 4) >= before / 4
    feed(pacer, lambda tokens: 0.01 + 0.001 * tokens, steps=20)
    assert room(pacer, 4) >= 0.9 * before


def test_a_clock_that_stands_still_is_no_division_by_zero() -> None:
    pacer = make_pacer()
    for prompt, decode in ((10, 0), (0, 3), (10, 3), (0, 3)):
        pacer.observe(prompt_tokens=prompt, decode_tokens=decode, seconds=0.0)
    assert room(pacer, 3) == MOST - 3
    pacer.observe(prompt_tokens=0, decode_tokens=3, seconds=0.2)
    assert pacer.base_s == 0.2


def test_what_was_learned_depends_on_nothing_but_the_steps() -> None:
    first, second = make_pacer(), make_pacer()
    assert feed(first, lambda n: 0.02 + n / 900, steps=25) == feed(second, lambda n: 0.02 + n / 900, steps=25)


def test_a_budget_counts_what_tokens_look_back_at() -> None:
    """30 units at 0.01 a pair: 10 tokens after 100 others are 10 + 0.01 * (1000 + 50) = 20.5, and 13 are 26.8."""
    budget = Budget(30.0, most=100, pair=0.01)
    n = budget.room(100)
    assert n + 0.01 * pairs(n, 100) <= 30.0 < (n + 1) + 0.01 * pairs(n + 1, 100)
    assert budget.room(0) == 26
    budget.spend(10, 100)
    left = 30.0 - 20.5
    n = budget.room(0)
    assert n + 0.01 * pairs(n, 0) <= left < (n + 1) + 0.01 * pairs(n + 1, 0)


def test_a_budget_ends_at_its_number_of_tokens_and_gives_the_first_piece_its_floor() -> None:
    budget = Budget(1000.0, most=20, floor=16)
    assert budget.room(5) == 20
    budget.spend(15, 5)
    assert budget.room(0) == 5
    poor = Budget(0.0, most=20, floor=16, pair=0.5)
    assert poor.room(9999) == 16
    poor.spend(3, 9999)
    assert poor.room(0) == 0
    assert Budget(7).room(123) == 7


def test_pairs_are_all_that_stand_before_and_half_of_each_other() -> None:
    assert pairs(10, 100) == 10 * 100 + 50
    assert pairs(1, 0) == 0.5


def test_what_a_context_costs_is_found_from_steps_that_differ() -> None:
    cost = ContextCost()
    for context in range(0, 4000, 40):
        tokens = 60 - context // 100
        cost.learn(tokens, pairs(tokens, context), 0.001 * tokens + 5e-7 * pairs(tokens, context))
    assert cost.pair == pytest.approx(5e-4)


def test_steps_that_are_alike_say_nothing_of_contexts() -> None:
    cost = ContextCost()
    for _ in range(50):
        cost.learn(32, pairs(32, 1000), 0.1)
    assert cost.pair == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_noise_on_steps_that_are_nearly_alike_says_nothing_either(seed: int) -> None:
    cost, chance = ContextCost(), Random(seed)
    for _ in range(200):
        context = chance.randint(1000, 1010)
        cost.learn(32, pairs(32, context), 0.1 * chance.uniform(0.8, 1.2))
    assert cost.pair == 0.0


def test_a_context_that_makes_steps_cheaper_is_noise() -> None:
    cost = ContextCost()
    for context in range(0, 4000, 40):
        cost.learn(32, pairs(32, context), 0.1 - context * 1e-5)
    assert cost.pair == 0.0


def cost_s(tokens: int, context: int) -> float:
    """Eight streams of 12 ms beside a prompt, as measured: 0.9 ms a token, and as much again per 1,600 before it."""
    return 0.012 + 0.0009 * (tokens + pairs(tokens, context) / 1600)


def read_prompt(pacer: Pacer, length: int, *, cached: int = 0) -> list[float]:
    """Seconds of each step."""
    done, history = cached, []
    while done < length:
        tokens = min(room(pacer, 8, done), length - done)
        history.append(cost_s(tokens, done))
        pacer.observe(prompt_tokens=tokens, decode_tokens=8, seconds=history[-1], pairs=pairs(tokens, done))
        done += tokens
    return history


def test_a_short_piece_behind_a_long_cached_beginning_is_not_taken_for_a_cheap_one() -> None:
    """A turn of a long conversation: hundreds of tokens after thousands that are cached, between short prompts."""
    pacer = make_pacer()
    pacer.observe(prompt_tokens=64, decode_tokens=0, seconds=cost_s(64, 0) - 0.012, pairs=pairs(64, 0))
    pacer.observe(prompt_tokens=0, decode_tokens=8, seconds=0.012)
    read_prompt(pacer, 4000)
    for _ in range(5):
        read_prompt(pacer, 300)
        assert max(read_prompt(pacer, 7000, cached=6500)) <= 1.2 * TARGET_S


def test_a_long_prompt_leaves_the_next_short_one_at_full_speed() -> None:
    pacer = make_pacer()
    pacer.observe(prompt_tokens=0, decode_tokens=8, seconds=0.012)
    history = read_prompt(pacer, 6000)
    assert max(history[5:]) <= TARGET_S
    assert min(history[2:-1]) >= 0.9 * TARGET_S, "nor does finding out what a context costs make pieces small"
    assert read_prompt(pacer, 400)[0] >= 0.8 * TARGET_S
