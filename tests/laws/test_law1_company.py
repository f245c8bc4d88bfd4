"""Law 1: company changes nothing. Tokens, logprobs and endings are the same alone and in any crowd.

Over the fake model, whose answer depends on every token it reads through the block tables; `alone` needs no engine.
"""

from collections import Counter
from functools import cache
from random import Random

import msgspec
import pytest

from model.sampling import Sampler
from model.sampling_params import SamplingParams
from server.engine.request import Request
from tests.helpers.workloads import SHAPES, make_requests, scatter
from tests.helpers.worlds import Answer, Setting, World, make_world, random_setting, solo

NUM_WORKLOADS = 120


@cache
def play_workload(seed: int, sampler: object = None) -> tuple[World, list[Request]]:
    """A random crowd in a random tight engine, some of it cancelled."""
    rng = Random(seed)
    longest, most_new = rng.choice(SHAPES)
    setting = random_setting(rng, longest=longest + most_new)
    requests = make_requests(rng, rng.randint(3, 24), block_size=setting.block_size, longest=longest, most_new=most_new)
    world = make_world(setting, sampler=sampler)
    world.play(scatter(rng, requests, over=30, cancel_share=0.1))
    return world, requests


def expect_as_alone(answer: Answer, expected: Answer) -> None:
    """Equal; or, when it was cancelled, the beginning of it."""
    if answer.finish == "cancelled":
        assert answer.tokens == expected.tokens[: len(answer.tokens)]
        assert answer.logprobs == expected.logprobs[: len(answer.logprobs)]
    else:
        assert answer.said == expected.said


@pytest.mark.parametrize("first", range(0, NUM_WORKLOADS, 20))
def test_a_crowd_changes_no_answer(first: int) -> None:
    for seed in range(first, first + 20):
        world, requests = play_workload(seed)
        for request in requests:
            expect_as_alone(world.answers[request.id], solo(request, world.setting.windows))


def test_the_workloads_reach_what_they_are_meant_to_test() -> None:
    reached: Counter[str] = Counter()
    for seed in range(NUM_WORKLOADS):
        world, _ = play_workload(seed)
        answers = world.answers.values()
        preempted = [each for each in answers if each.preemptions]
        reached["preempted"] += len(preempted)
        reached["preempted more than once"] += sum(each.preemptions > 1 for each in answers)
        reached["preempted and ended well"] += sum(each.finish in ("stop", "length") for each in preempted)
        reached["cancelled"] += sum(each.finish == "cancelled" for each in answers)
        reached["cancelled with tokens"] += sum(each.finish == "cancelled" and bool(each.tokens) for each in answers)
        reached["stopped"] += sum(each.finish == "stop" for each in answers)
        reached["cached"] += sum(each.cached_tokens > 0 for each in answers)
        reached["recomputed"] += sum(stats.recomputed_tokens for stats in world.history)
        reached["crowded steps"] += sum(stats.running >= 4 for stats in world.history)
        reached["a line"] += sum(stats.waiting >= 4 for stats in world.history)
        reached["windows and preempted"] += len(preempted) if len(world.setting.windows) > 1 else 0
    assert min(reached.values()) >= 10, reached


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_a_crowd_changes_no_answer_of_the_real_sampler(seed: int) -> None:
    sampler = Sampler()
    world, requests = play_workload(seed, sampler)
    for request in requests:
        expect_as_alone(world.answers[request.id], solo(request, world.setting.windows, sampler))


PROMPT = tuple(Random(5).randrange(3) for _ in range(41))
REQUEST = Request("x", PROMPT, 30, SamplingParams(temperature=0.8, seed=3, num_logprobs=1))


@cache
def expected(windows: tuple[int | None, ...]) -> Answer:
    return solo(REQUEST, windows)


@pytest.mark.parametrize("windows", [(None,), (None, 6)])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_the_size_of_the_prompts_pieces_changes_nothing(windows: tuple[int | None, ...], block_size: int) -> None:
    for size in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 40, 41, 64):
        world = make_world(Setting(windows, (80,) * len(windows), block_size, max_num_batched_tokens=size))
        assert world.run([REQUEST])["x"].said == expected(windows).said


@pytest.mark.parametrize("windows", [(None,), (None, 6)])
@pytest.mark.parametrize("num_warm", [0, 1, 3, 4, 8, 11, 12, 20, 40, 41])
def test_what_is_cached_changes_nothing(windows: tuple[int | None, ...], num_warm: int) -> None:
    world = make_world(Setting(windows, (80,) * len(windows)))
    if num_warm:
        others = [*PROMPT[:num_warm], *([2 - PROMPT[num_warm]] * 5 if num_warm < 41 else [])]
        world.run([msgspec.structs.replace(REQUEST, id="before", prompt=tuple(others))])
    answer = world.run([REQUEST])["x"]
    assert answer.cached_tokens == (
        min(num_warm, 40) // 4 * 4 if PROMPT[num_warm - 1 : num_warm] or num_warm == 0 else 0
    )
    assert answer.said == expected(windows).said


@pytest.mark.parametrize("windows", [(None,), (None, 6)])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_preemptions_change_nothing(windows: tuple[int | None, ...], prefix_cache: bool) -> None:
    older = msgspec.structs.replace(REQUEST, id="older", prompt=PROMPT[:1], max_tokens=70)
    setting = Setting(windows, (18,) * len(windows), prefix_cache=prefix_cache)
    world = make_world(setting)
    answers = world.run([older, REQUEST])
    assert answers["x"].preemptions >= 1
    assert answers["x"].said == expected(windows).said
    assert answers["older"].said == solo(older, windows).said
