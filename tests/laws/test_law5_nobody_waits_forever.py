"""Law 5 in the engine: every request ends within a bound that follows from the work itself, in order of arrival."""

import threading
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from model.sampling_params import SamplingParams
from server.engine.constraint import Grammars
from server.engine.request import Constraint, Request
from tests.helpers.workloads import SHAPES, Script, make_requests, scatter
from tests.helpers.worlds import Setting, make_world, random_setting, solo


def most_steps(script: Script) -> int:
    """Every step moves the oldest on by a token, and once it is the oldest nobody can throw it back. A step more each
    to be let in, and one in which whoever computes blocks for it is thrown out instead."""
    return script.last + sum(len(each.prompt) + each.max_tokens + 2 for each in script.requests)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_every_request_ends_within_the_steps_that_its_tokens_take(first: int) -> None:
    for seed in range(5000 + first, 5000 + first + 20):
        rng = Random(seed)
        longest, most_new = rng.choice(SHAPES)
        setting = random_setting(rng, longest=longest + most_new)
        requests = make_requests(
            rng, rng.randint(3, 30), block_size=setting.block_size, longest=longest, most_new=most_new
        )
        script = scatter(rng, requests, over=30, cancel_share=rng.choice([0.0, 0.2]))
        answers = make_world(setting).play(script, most_steps=most_steps(script), check=False)
        assert {each.finish for each in answers.values()} <= {"stop", "length", "cancelled"}


def greedy(name: str, prompt: int, max_tokens: int, *, seed: int = 0) -> Request:
    rng = Random(seed or name)
    return Request(name, tuple(rng.randrange(3) for _ in range(prompt)), max_tokens, SamplingParams(temperature=0.0))


def test_a_big_request_is_not_starved_by_a_flood_of_small_ones() -> None:
    world = make_world(Setting(num_blocks=(20,), max_num_seqs=8, prefix_cache=False))
    world.engine.submit([greedy(f"before{i}", 8, 12) for i in range(6)])
    world.step()
    world.engine.submit([greedy("big", 60, 20)])
    for number in range(200):
        world.engine.submit([greedy(f"after{number}", 4, 4)])
        world.step()
        if "big" in world.answers:
            break
        assert not any(name.startswith("after") for name in world.answers), "a late-comer overtook it"
    assert world.answers["big"].finish is None
    assert number < 60
    world.play(Script())
    assert world.answers["big"].preemptions == 0


def test_who_was_thrown_out_goes_on_before_any_late_comer() -> None:
    world = make_world(Setting(num_blocks=(15,), max_num_seqs=8))
    world.engine.submit([greedy(f"old{i}", 4, 40) for i in range(3)])
    while not world.step().preemptions:
        pass
    young = world.answers["old2"]
    written, late = len(young.tokens), 0
    while len(young.tokens) == written:
        world.engine.submit([greedy(f"late{late}", 1, 1)])
        world.step()
        late += 1
        assert late < 100
    assert written > 0
    assert not [name for name in world.answers if name.startswith("late")]
    world.play(Script())


def test_requests_are_let_in_in_order_of_arrival() -> None:
    for seed in range(20):
        rng = Random(seed)
        setting = random_setting(rng, longest=64)
        requests = make_requests(rng, 15, block_size=setting.block_size)
        world = make_world(setting)
        world.run(requests)
        waits = [world.answers[each.id].queue_seconds for each in requests if not world.answers[each.id].preemptions]
        assert waits == sorted(waits)


def test_two_that_need_the_whole_cache_take_turns_and_both_end() -> None:
    """The worst case for thrashing: each alone fits exactly."""
    requests = [greedy(f"{i}", 4, 37) for i in range(3)]
    world = make_world(Setting(num_blocks=(10,), prefix_cache=False))
    script = Script({0: requests})
    answers = world.play(script, most_steps=most_steps(script))
    assert all(len(each.tokens) == 37 for each in answers.values())
    assert sum(each.preemptions for each in answers.values()) <= 6, "nobody is let in only to be thrown out again"


def test_what_can_never_fit_is_refused_and_the_line_goes_on() -> None:
    requests = [greedy("a", 10, 5), greedy("never", 50, 5), greedy("b", 10, 5), greedy("never either", 1, 60)]
    answers = make_world(Setting(num_blocks=(10,))).run(requests)
    assert [answers[each.id].finish for each in requests] == ["length", "error", "length", "error"]


def test_a_tiny_step_budget_still_serves_prompts_beside_many_streams() -> None:
    requests = [greedy(f"{i}", 1, 30) for i in range(7)] + [greedy("prompt", 25, 2)]
    script = Script({0: requests[:7], 3: requests[7:]})
    answers = make_world(Setting(max_num_batched_tokens=1)).play(script, most_steps=120)
    assert answers["prompt"].finish == "length"


def timed(name: str, prompt: int, max_tokens: int, deadline: float) -> Request:
    return msgspec.structs.replace(greedy(name, prompt, max_tokens), deadline=deadline)


def test_a_deadline_ends_decoding_with_what_there_is() -> None:
    world = make_world(cost=lambda chunks: 1.0)
    free = world.run([greedy("x", 8, 20)])["x"].tokens
    world = make_world(cost=lambda chunks: 1.0)
    answer = world.run([timed("x", 8, 20, deadline=6.5)])["x"]
    assert (answer.finish, answer.ended_by) == ("length", "deadline")
    assert answer.tokens == free[: len(answer.tokens)]
    assert len(answer.tokens) == 7, "the step that had begun in time still counts"


def test_a_deadline_holds_in_the_line_too_and_in_the_middle_of_a_prompt() -> None:
    world = make_world(Setting(max_num_seqs=1, max_num_batched_tokens=4), cost=lambda chunks: 1.0)
    answers = world.run([timed("prompt", 40, 5, deadline=3.5), timed("line", 4, 5, deadline=2.5), greedy("free", 4, 3)])
    assert [answers[name].ended_by for name in ("prompt", "line", "free")] == ["deadline", "deadline", ""]
    assert [len(answers[name].tokens) for name in ("prompt", "line", "free")] == [0, 0, 3]
    assert answers["line"].queue_seconds == 3.0


def test_a_deadline_that_has_passed_computes_nothing_and_one_that_has_not_changes_nothing() -> None:
    world = make_world(cost=lambda chunks: 1.0)
    answers = world.run([timed("late", 8, 5, deadline=0.0), timed("early", 8, 5, deadline=1e9), greedy("free", 8, 5)])
    assert (answers["late"].tokens, answers["late"].ended_by) == ([], "deadline")
    assert sum(stats.prompt_tokens for stats in world.history) == 16
    assert answers["early"].ended_by == ""
    assert answers["early"].finish == "length"


@pytest.fixture
def never_compiling() -> Iterator[Grammars]:
    released = threading.Event()

    def wait() -> None:
        released.wait(60)

    yield Grammars(wait)
    released.set()


def test_a_deadline_holds_while_everybody_waits_for_a_grammar(never_compiling: Grammars) -> None:
    world = make_world(grammars=never_compiling)
    constraint = Constraint("regex", "a")
    late = msgspec.structs.replace(timed("late", 4, 5, deadline=2.5), constraint=constraint)
    world.engine.submit([late, msgspec.structs.replace(late, id="later", deadline=4.5)])
    world.engine.submit([msgspec.structs.replace(late, id="patient", deadline=None)])
    assert (world.engine.has_work, world.engine.next_deadline) == (False, 2.5)
    world.clock.now = 2.5
    assert world.engine.has_work
    world.step()
    ended = world.answers["late"]
    assert (list(world.answers), ended.finish, ended.ended_by, ended.queue_seconds) == (
        ["late"],
        "length",
        "deadline",
        2.5,
    )
    assert (world.engine.has_work, world.engine.next_deadline) == (False, 4.5)
    world.engine.cancel(["later"])
    world.step()
    assert (world.engine.has_work, world.engine.next_deadline) == (False, None)


@pytest.mark.parametrize("seed", range(10))
def test_deadlines_in_a_crowd_end_on_time_and_change_nobody_else(seed: int) -> None:
    rng = Random(seed)
    requests = make_requests(rng, 12, block_size=4, longest=20, most_new=12)
    timed_ones = {each.id: rng.uniform(0, 25) for each in requests if rng.random() < 0.5}
    given = [msgspec.structs.replace(each, deadline=timed_ones.get(each.id)) for each in requests]
    setting = Setting(num_blocks=(14,), max_num_seqs=4, max_num_batched_tokens=9)
    world = make_world(setting, cost=lambda chunks: 1.0)
    answers = world.run(given)
    for request in requests:
        answer, its = answers[request.id], solo(request, (None,))
        if answer.ended_by:
            assert answer.tokens == its.tokens[: len(answer.tokens)]
        else:
            assert answer.said == its.said
    assert any(each.ended_by for each in answers.values())
