"""The synchronous core: events, endings, cancels, failures and counts, over the fake model and the real cache."""

import random
from collections.abc import Sequence

import pytest
import torch
from msgspec import structs
from torch import Tensor

from model.batch import Chunk
from model.sampling import Sampled, SamplingRow
from model.sampling_params import SamplingParams
from model.scores import Scores
from server.engine.request import GroupStats, Request, TokenEvent
from tests.helpers.fake_model import BAD_LOGITS, NOT_FINITE, RAISES, FakeRunner, QuickSampler
from tests.helpers.workloads import Script
from tests.helpers.worlds import Setting, World, make_world, solo

PROMPT = (1, 2, 0, 1, 1, 2, 2, 0, 1, 0)


def make_request(
    name: str = "a",
    prompt: Sequence[int] = PROMPT,
    *,
    max_tokens: int = 5,
    stop: tuple[int, ...] = (),
    logprobs: int | None = None,
    salt: str = "",
) -> Request:
    params = SamplingParams(temperature=0.0, stop_token_ids=stop, num_logprobs=logprobs)
    return Request(name, tuple(prompt), max_tokens, params, cache_salt=salt)


def random_prompt(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3) for _ in range(length)]


def used_blocks(world: World) -> int:
    return sum(group.used for group in world.manager.stats())


# -- answers


def test_an_answer_ends_by_length_and_is_the_models_own() -> None:
    world = make_world()
    answer = world.run([make_request(max_tokens=7)])["a"]
    assert (len(answer.tokens), answer.finish, answer.error) == (7, "length", None)
    assert answer.said == solo(make_request(max_tokens=7), (None,)).said


def test_an_answer_ends_with_its_stop_token_which_is_part_of_it() -> None:
    free = solo(make_request(max_tokens=8), (None,)).tokens
    stop = free[4]
    world = make_world()
    answer = world.run([make_request(max_tokens=8, stop=(stop,))])["a"]
    assert answer.finish == "stop"
    assert answer.tokens == free[: free.index(stop) + 1]


def test_one_token_can_be_all() -> None:
    assert len(make_world().run([make_request(prompt=[2], max_tokens=1)])["a"].tokens) == 1


def events_of(world: World, request: Request) -> list[TokenEvent]:
    world.engine.submit([request])
    events: list[TokenEvent] = []
    while world.engine.has_work:
        events += world.engine.step().events
    return events


def test_a_long_prompt_tells_how_far_it_is_if_it_is_to() -> None:
    prompt = random_prompt(2, 100)
    asked = structs.replace(make_request(prompt=prompt, max_tokens=2), wants_progress=True)
    world = make_world(Setting(max_num_batched_tokens=32, max_num_seqs=8))
    events = events_of(world, asked)
    before = [event.prompt_done for event in events if not event.tokens]
    assert before == sorted(set(before))
    assert before[-1] > 90
    assert len(before) == 3
    assert all(event.prompt_done == 100 for event in events if event.tokens)
    again = events_of(world, structs.replace(asked, id="b"))
    assert [event.prompt_done for event in again if not event.tokens] == []  # nearly all of it was cached


def test_a_prompt_that_is_not_asked_tells_nothing() -> None:
    events = events_of(make_world(Setting(max_num_batched_tokens=32)), make_request(prompt=random_prompt(2, 100)))
    assert all(event.tokens for event in events)


@pytest.mark.parametrize("length", [1, 4, 9, 40])
def test_no_token_can_be_all_and_the_prompt_is_run_and_cached_all_the_same(length: int) -> None:
    world = make_world()
    answer = world.run([make_request(prompt=random_prompt(1, length), max_tokens=0)])["a"]
    assert (answer.tokens, answer.finish, answer.error) == ([], "length", None)
    again = world.run([make_request("b", random_prompt(1, length), max_tokens=1)])["b"]
    assert again.cached_tokens == (length - 1) // 4 * 4


def test_logprobs_come_with_each_token_only_when_asked_for() -> None:
    requests = [make_request("none"), make_request("chosen", logprobs=0), make_request("two", logprobs=2)]
    answers = make_world().run(requests)
    assert answers["none"].logprobs == []
    assert [len(each.top_ids) for each in answers["chosen"].logprobs] == [0] * 5
    assert [len(each.top_ids) for each in answers["two"].logprobs] == [2] * 5
    assert [each.top_ids[0] for each in answers["two"].logprobs] == answers["two"].tokens, "greedy takes the best"


# -- the prompt's own log-probabilities


def scored_request(name: str, prompt: Sequence[int], best: int, *, max_tokens: int = 3) -> Request:
    return structs.replace(make_request(name, prompt, max_tokens=max_tokens, logprobs=1), prompt_logprobs=best)


@pytest.mark.parametrize("length", [1, 2, 5, 8, 63, 64, 65, 66, 150])
@pytest.mark.parametrize("max_tokens", [0, 3])
@pytest.mark.parametrize("size", [7, 512])
def test_every_token_of_the_prompt_but_the_first_is_scored(length: int, max_tokens: int, size: int) -> None:
    request = scored_request("a", random_prompt(length, length), 2, max_tokens=max_tokens)
    world = make_world(Setting(max_num_batched_tokens=size))
    answer = world.run([request])["a"]
    assert len(answer.prompt_logprobs) == length - 1
    assert answer.said == solo(request, (None,)).said


def test_a_step_never_holds_more_rows_of_logits_than_it_may_score_and_choose() -> None:
    most = list[int]()
    world = make_world(Setting(max_num_batched_tokens=512))
    world.runner.on_step = lambda chunks: most.append(sum(chunk.num_logits for chunk in chunks))
    requests = [scored_request(f"{i}", random_prompt(i, 150), 1) for i in range(3)]
    world.run([*requests, *(make_request(f"plain{i}", random_prompt(9 + i, 40)) for i in range(4))])
    assert max(most) <= 64 + 7
    assert max(most) >= 64


@pytest.mark.parametrize("length", [64, 65, 66, 129, 130])
def test_a_prompt_s_last_token_waits_for_a_step_that_may_score_all_before_it(length: int) -> None:
    most = list[int]()
    world = make_world(Setting(max_num_batched_tokens=512))
    world.runner.on_step = lambda chunks: most.append(sum(chunk.num_logits for chunk in chunks))
    world.run([scored_request("a", random_prompt(1, length), 1, max_tokens=1)])
    assert sum(most) == length, "a row for each token but the first, and one that chooses"
    assert max(most) <= 64 + 1
    assert most[:-1] == [64] * (len(most) - 1)


def test_a_warm_cache_takes_no_scores_away_and_is_not_counted() -> None:
    prompt = random_prompt(3, 40)
    world = make_world()
    cold = world.run([scored_request("cold", prompt, 2)])["cold"]
    warm = world.run([scored_request("warm", prompt, 2), make_request("plain", prompt, max_tokens=3)])
    assert warm["warm"].said == cold.said
    assert warm["warm"].cached_tokens == 0
    assert warm["plain"].cached_tokens == 36


def test_neighbours_share_what_a_scored_prompt_computes() -> None:
    prompt = random_prompt(4, 41)
    world = make_world()
    answers = world.run([scored_request("scored", prompt, 1), make_request("plain", prompt)])
    assert answers["plain"].cached_tokens == 40
    assert sum(stats.prompt_tokens for stats in world.history) == 41 + 1


@pytest.mark.parametrize("cached", [True, False])
def test_a_scored_prompt_that_is_thrown_out_halfway_scores_nothing_twice(cached: bool) -> None:
    """It resumes from the cache as far as it was scored, and no further."""
    old, new = make_request("old", random_prompt(1, 8), max_tokens=40), scored_request("new", random_prompt(2, 24), 1)
    world = make_world(Setting(num_blocks=(12,), max_num_batched_tokens=2, prefix_cache=cached))
    answers = world.run([old, new])
    assert answers["new"].preemptions >= 1
    assert answers["new"].said == solo(new, (None,)).said
    assert answers["new"].cached_tokens == 0, "what it computed itself saved it nothing"


def test_broken_logits_of_a_scored_prompt_end_it_alone() -> None:
    bad = [BAD_LOGITS, 1, 2, 0, 1, 2]
    world = make_world(Setting(max_num_batched_tokens=3))
    good = make_request("good")
    answers = world.run([scored_request("bad", bad, 1), good])
    assert (answers["bad"].finish, answers["bad"].prompt_logprobs) == ("error", [])
    assert "not finite" in (answers["bad"].error or "")
    assert answers["good"].said == solo(good, (None,)).said


def test_times_add_up_to_the_request_s_life() -> None:
    world = make_world(Setting(max_num_seqs=1, max_num_batched_tokens=4), cost=lambda chunks: 1.0)
    answers = world.run([make_request("a", random_prompt(1, 8), max_tokens=5), make_request("b", [1], max_tokens=3)])
    times = {name: (each.queue_seconds, each.prompt_seconds, each.decode_seconds) for name, each in answers.items()}
    assert times == {"a": (0.0, 2.0, 4.0), "b": (6.0, 1.0, 2.0)}


def test_one_event_per_request_and_step() -> None:
    world = make_world()
    world.engine.submit([make_request("a"), make_request("b", prompt=[1])])
    world.step()
    assert {name: (each.num_events, len(each.tokens)) for name, each in world.answers.items()} == {
        "a": (1, 1),
        "b": (1, 1),
    }


def test_who_is_let_in_is_named_before_the_step_that_runs_it() -> None:
    world = make_world(Setting(max_num_batched_tokens=4, max_num_seqs=1))
    runs: list[Sequence[Chunk]] = []
    world.runner.on_step = runs.append
    named: list[tuple[str, ...]] = []
    world.engine.on_begin(lambda ids: named.append((*ids, f"after {len(runs)} runs")))
    world.engine.submit([make_request("a", prompt=[1] * 10), make_request("b")])
    world.step()
    assert named == [("a", "after 0 runs")], "b still waits"
    world.step()
    assert len(named) == 1
    while world.engine.has_work:
        world.step()
    assert [each[0] for each in named] == ["a", "b"]


def test_who_waited_elsewhere_before_has_waited_since_then() -> None:
    world = make_world(Setting())
    world.clock.now = 100.0
    world.engine.submit([structs.replace(make_request("a"), waiting_since=93.0)])
    world.step()
    assert world.answers["a"].queue_seconds == pytest.approx(7.0)


def test_queue_seconds_are_those_in_the_line() -> None:
    world = make_world(Setting(max_num_seqs=1), cost=lambda chunks: 0.5)
    world.engine.submit([make_request("a", max_tokens=3), make_request("b", max_tokens=1)])
    world.clock.now += 0.25
    while world.engine.has_work:
        world.step()
    assert world.answers["a"].queue_seconds == 0.25
    assert world.answers["b"].queue_seconds == 0.25 + 3 * 0.5


def test_an_idle_engine_has_no_work_and_its_stats_say_so() -> None:
    world = make_world(Setting(num_blocks=(9,)))
    assert not world.engine.has_work
    stats = world.engine.stats()
    assert (stats.running, stats.waiting, stats.groups) == (0, 0, (GroupStats(0, 0, 9, 1024),))


# -- counts


def test_stats_say_what_a_step_did_and_how_things_stand() -> None:
    world = make_world(Setting(max_num_batched_tokens=12, max_num_seqs=2), cost=lambda chunks: 0.02)
    world.engine.submit([make_request("a"), make_request("b", prompt=[2] * 4), make_request("c")])
    first = world.step()
    assert (first.seconds, first.prompt_tokens, first.decode_tokens) == (0.02, 12, 0)
    assert (first.running, first.waiting, first.preemptions) == (2, 1, 0)
    assert first.groups == (GroupStats(used=4, cached=0, free=196, block_bytes=1024),)
    second = world.step()
    assert (second.prompt_tokens, second.decode_tokens) == (2, 1)


def test_cached_prompt_tokens_are_reported_and_not_run_again() -> None:
    world = make_world()
    world.run([make_request("first")])
    answers = world.run([make_request("second")])
    assert (answers["first"].cached_tokens, answers["second"].cached_tokens) == (0, 8)
    assert sum(stats.prompt_tokens for stats in world.history) == 10 + 2


def test_prompt_tokens_plus_cached_ones_are_the_prompts_whatever_was_preempted() -> None:
    requests = [make_request(f"{i}", random_prompt(i % 3, 6 + i), max_tokens=20) for i in range(7)]
    world = make_world(Setting(num_blocks=(16,), max_num_batched_tokens=16))
    answers = world.run(requests)
    assert sum(stats.preemptions for stats in world.history) == sum(each.preemptions for each in answers.values()) > 0
    assert sum(stats.recomputed_tokens for stats in world.history) > 0
    run = sum(stats.prompt_tokens - stats.recomputed_tokens for stats in world.history)
    assert run + sum(each.cached_tokens for each in answers.values()) == sum(len(each.prompt) for each in requests)
    assert sum(stats.decode_tokens for stats in world.history) == 7 * 19, "all outputs but each one's last"


def test_sixteen_cold_requests_with_one_prefix_compute_it_once() -> None:
    prefix = random_prompt(0, 512)
    requests = [make_request(f"{i}", [*prefix, i % 3, *random_prompt(i, 5)], max_tokens=3) for i in range(16)]
    world = make_world(Setting(num_blocks=(200,), block_size=16, max_num_seqs=16, max_num_batched_tokens=100))
    answers = world.run(requests)
    assert sum(stats.prompt_tokens for stats in world.history) == 512 + 16 * 6
    assert [answers[f"{i}"].cached_tokens for i in range(16)] == [0] + 15 * [512]
    assert all(answers[each.id].said == solo(each, (None,)).said for each in requests)


def test_when_the_owner_of_a_prefix_is_cancelled_a_waiter_goes_on_with_it() -> None:
    prefix = random_prompt(0, 512)
    requests = [make_request(f"{i}", [*prefix, i % 3, *random_prompt(i, 5)], max_tokens=3) for i in range(16)]
    world = make_world(Setting(num_blocks=(200,), block_size=16, max_num_seqs=16, max_num_batched_tokens=104))
    script = Script({0: requests}, {2: ["0"]})
    answers = world.play(script)
    assert answers["0"].finish == "cancelled"
    lost = 208 % 16  # of what the first had computed, only full blocks outlive it
    assert sum(stats.prompt_tokens for stats in world.history) == 512 + lost + 15 * 6
    assert all(answers[each.id].said == solo(each, (None,)).said for each in requests[1:])


# -- cancels


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 6])
def test_a_cancel_works_at_any_moment_and_its_blocks_are_back_at_once(steps: int) -> None:
    world = make_world(Setting(max_num_batched_tokens=4))
    world.engine.submit([make_request("a", max_tokens=10)])
    for _ in range(steps):
        world.step()
    world.engine.cancel(["a"])
    assert used_blocks(world) == 0
    assert world.engine.has_work, "its last event is still to be delivered"
    stats = world.step()
    assert world.answers["a"].finish == "cancelled"
    assert (stats.prompt_tokens, stats.decode_tokens, stats.running) == (0, 0, 0)
    assert not world.engine.has_work


def test_a_cancel_in_the_line_leaves_the_others_their_places() -> None:
    world = make_world(Setting(max_num_seqs=1))
    requests = [make_request(name, max_tokens=2) for name in "abc"]
    world.engine.submit(requests)
    world.step()
    world.engine.cancel(["b"])
    assert world.step().waiting == 1
    world.play(Script())
    assert [world.answers[name].finish for name in "abc"] == ["length", "cancelled", "length"]


def test_cancelling_what_is_unknown_or_over_changes_nothing() -> None:
    world = make_world()
    world.run([make_request("a")])
    world.engine.cancel(["a", "never heard of"])
    assert not world.engine.has_work


# -- what can't be done


def test_what_can_never_fit_ends_with_both_numbers_and_the_others_go_on() -> None:
    world = make_world(Setting(num_blocks=(5,)))
    answers = world.run([make_request("big", [1] * 18, max_tokens=4), make_request("small", [1, 2], max_tokens=3)])
    assert answers["big"].finish == "error"
    assert answers["big"].error == "21 tokens can never fit the KV cache of 20 tokens"
    assert answers["small"].finish == "length"


def test_what_fits_to_the_last_slot_is_served() -> None:
    request = make_request("big", [1, 2] * 9, max_tokens=3)
    answers = make_world(Setting(num_blocks=(5,))).run([request])
    assert answers["big"].said == solo(request, (None,)).said


@pytest.mark.parametrize(("prompt", "max_tokens"), [((), 3), ((), 0)])
def test_a_request_for_nothing_is_an_error_of_its_own(prompt: tuple[int, ...], max_tokens: int) -> None:
    answers = make_world().run([make_request("empty", prompt, max_tokens=max_tokens), make_request("b")])
    assert (answers["empty"].finish, answers["b"].finish) == ("error", "length")


# -- failures

GOOD = [make_request(f"good{i}", random_prompt(i, 5 + 2 * i), max_tokens=6) for i in range(5)]


def expect_good_unharmed(world: World) -> None:
    for request in GOOD:
        assert world.answers[request.id].said == solo(request, (None,)).said


@pytest.mark.parametrize("place", [0, 2, 5])
def test_a_request_whose_computation_raises_ends_alone(place: int) -> None:
    world = make_world()
    bad = make_request("bad", [1, 2, RAISES, 1])
    world.run([*GOOD[:place], bad, *GOOD[place:]])
    answer = world.answers["bad"]
    assert (answer.tokens, answer.finish) == ([], "error")
    assert answer.error is not None
    assert "can't be computed" in answer.error
    expect_good_unharmed(world)


def test_a_fault_in_a_late_piece_of_a_prompt_discards_the_early_ones() -> None:
    world = make_world(Setting(max_num_batched_tokens=5))
    prompt = [*random_prompt(1, 14), RAISES]
    world.run([*GOOD, make_request("bad", prompt)])
    expect_good_unharmed(world)
    again = world.run([make_request("after", prompt[:14])])["after"]
    assert again.cached_tokens < 12, "of what the failed one alone computed, nothing stays cached"


@pytest.mark.parametrize("place", [0, 2, 5])
@pytest.mark.parametrize(
    ("token", "error"), [(BAD_LOGITS, "the model's logits are not finite"), (NOT_FINITE, "hidden")]
)
def test_numbers_that_are_not_finite_end_the_request_and_nobody_else(place: int, token: int, error: str) -> None:
    world = make_world()
    bad = make_request("bad", [2, 1, token, 1, 0, 2, 2])
    world.run([*GOOD[:place], bad, *GOOD[place:]])
    assert world.answers["bad"].finish == "error"
    assert error in str(world.answers["bad"].error)
    expect_good_unharmed(world)


def test_blocks_that_held_numbers_that_are_not_finite_harm_nobody_who_gets_them_next() -> None:
    world = make_world(Setting(num_blocks=(8,), prefix_cache=False))
    world.run([make_request("bad", [NOT_FINITE] * 25)])
    request = make_request("next", random_prompt(3, 6), max_tokens=9)
    assert world.run([request])["next"].said == solo(request, (None,)).said


class Picky(QuickSampler):
    """Raises when a row of a prompt that begins with 2 is among those to sample."""

    def sample(self, logits: Tensor, rows: Sequence[SamplingRow]) -> list[Sampled]:
        if any(row.prompt[0] == 2 for row in rows):
            raise ZeroDivisionError("picky")
        return super().sample(logits, rows)


def test_a_request_whose_sampling_raises_ends_alone() -> None:
    requests = [make_request(f"{i}", [i % 3, 1, 1, i % 2], max_tokens=4) for i in range(6)]
    answers = make_world(sampler=Picky()).run(requests)
    for number, request in enumerate(requests):
        if number % 3 == 2:
            assert answers[request.id].error == "sampling failed: ZeroDivisionError('picky')"
        else:
            assert answers[request.id].said == solo(request, (None,)).said


class OutOfMemory(FakeRunner):
    """Can't run more than two chunks at once."""

    def run(self, chunks: Sequence[Chunk]) -> Scores:
        if len(chunks) > 2:
            raise torch.OutOfMemoryError
        return super().run(chunks)


def test_a_batch_that_is_too_big_for_the_machine_is_run_in_parts() -> None:
    world = make_world(runner=OutOfMemory((None,), [201], 4))
    world.run(GOOD)
    expect_good_unharmed(world)


class Broken(FakeRunner):
    """Every run raises."""

    def run(self, chunks: Sequence[Chunk]) -> Scores:
        raise RuntimeError("no device")


def test_when_nothing_works_all_end_with_errors_and_the_blocks_come_back() -> None:
    world = make_world(runner=Broken((None,), [201], 4))
    answers = world.run(GOOD)
    assert {each.finish for each in answers.values()} == {"error"}


def test_the_same_inputs_give_the_same_events_in_the_same_steps() -> None:
    def play() -> list[object]:
        world = make_world(Setting(num_blocks=(14,)), cost=lambda chunks: 0.001 * len(chunks))
        world.engine.submit(GOOD)
        outcomes: list[object] = []
        while world.engine.has_work:
            outcome = world.engine.step()
            outcomes.append((outcome.events, outcome.stats))
        return outcomes

    assert play() == play()
