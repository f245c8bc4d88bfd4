"""Pacing learns what a step costs and sizes the prompt pieces beside running streams by it."""

from collections.abc import Callable

import pytest

from server.engine.pacing import Pacer

TARGET_S = 0.1
FLOOR, MOST = 16, 512


def make_pacer() -> Pacer:
    return Pacer(target_s=TARGET_S, floor=FLOOR, most=MOST)


def feed(pacer: Pacer, cost: Callable[[int], float], *, steps: int, num_decoding: int = 4) -> list[tuple[int, float]]:
    """Run steps that are as full as the pacer lets them be: (prompt tokens, seconds) of each."""
    history = []
    for _ in range(steps):
        tokens = pacer.prompt_tokens(num_decoding)
        seconds = cost(tokens)
        pacer.observe(prompt_tokens=tokens, decode_tokens=num_decoding, seconds=seconds)
        history.append((tokens, seconds))
    return history


def test_before_anything_is_known_a_step_takes_the_whole_budget() -> None:
    assert make_pacer().prompt_tokens(0) == MOST
    assert make_pacer().prompt_tokens(12) == MOST - 12


def test_the_streams_tokens_come_out_of_the_same_budget() -> None:
    assert make_pacer().prompt_tokens(MOST - 1) == 1
    assert make_pacer().prompt_tokens(MOST + 5) == 1, "a prompt always progresses"


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
    assert all(seconds <= TARGET_S for _, seconds in later[3:])
    assert all(seconds <= 1.3 * TARGET_S for _, seconds in later)


def test_a_growing_context_is_followed() -> None:
    pacer, done, worst = make_pacer(), 0, 0.0
    pacer.observe(prompt_tokens=64, decode_tokens=0, seconds=0.064)
    pacer.observe(prompt_tokens=0, decode_tokens=4, seconds=0.02)
    while done < 8000:
        tokens = pacer.prompt_tokens(4)
        seconds = 0.02 + tokens * (0.001 + 2e-7 * done)  # attention costs more the more there is to attend to
        pacer.observe(prompt_tokens=tokens, decode_tokens=4, seconds=seconds)
        done, worst = done + tokens, max(worst, seconds)
    assert worst <= TARGET_S


def test_prompts_progress_by_the_floor_when_the_streams_alone_exceed_the_target() -> None:
    pacer = make_pacer()
    pacer.observe(prompt_tokens=64, decode_tokens=0, seconds=0.5)
    pacer.observe(prompt_tokens=0, decode_tokens=4, seconds=3 * TARGET_S)
    assert pacer.prompt_tokens(4) == FLOOR


def test_without_streams_a_step_stays_under_a_second() -> None:
    pacer = make_pacer()
    pacer.observe(prompt_tokens=MOST, decode_tokens=0, seconds=8.0)
    tokens = pacer.prompt_tokens(0)
    assert tokens * 8.0 / MOST <= 1.0
    assert tokens >= FLOOR


def test_a_fast_machine_gets_all_it_asked_for() -> None:
    pacer = make_pacer()
    pacer.observe(prompt_tokens=MOST, decode_tokens=0, seconds=0.001)
    assert pacer.prompt_tokens(0) == MOST


def test_one_slow_step_does_not_stall_the_prompts() -> None:
    pacer = make_pacer()
    feed(pacer, lambda tokens: 0.01 + 0.001 * tokens, steps=20)
    before = pacer.prompt_tokens(4)
    pacer.observe(prompt_tokens=before, decode_tokens=4, seconds=60.0)  # the machine was busy with something else
    assert pacer.prompt_tokens(4) >= before / 4
    feed(pacer, lambda tokens: 0.01 + 0.001 * tokens, steps=20)
    assert pacer.prompt_tokens(4) >= 0.9 * before


def test_a_clock_that_stands_still_is_no_division_by_zero() -> None:
    pacer = make_pacer()
    for prompt, decode in ((10, 0), (0, 3), (10, 3), (0, 3)):
        pacer.observe(prompt_tokens=prompt, decode_tokens=decode, seconds=0.0)
    assert pacer.prompt_tokens(3) == MOST - 3
    pacer.observe(prompt_tokens=0, decode_tokens=3, seconds=0.2)
    assert pacer.base_s == 0.2


def test_what_was_learned_depends_on_nothing_but_the_steps() -> None:
    first, second = make_pacer(), make_pacer()
    assert feed(first, lambda n: 0.02 + n / 900, steps=25) == feed(second, lambda n: 0.02 + n / 900, steps=25)
