"""Law 2 at the engine's level: what a seed draws depends on seed, choice and position, not on scheduling."""

from random import Random

import msgspec
import pytest

from model.sampling import Sampler
from model.sampling_params import SamplingParams
from server.engine.request import Request
from tests.helpers.workloads import make_requests
from tests.helpers.worlds import Setting, make_world

PROMPT = (1, 0, 2, 1, 1, 0, 2)


def make_request(name: str, *, seed: int = 0, choice: int = 0, max_tokens: int = 24) -> Request:
    params = SamplingParams(temperature=1.5, seed=seed, choice=choice, num_logprobs=0)
    return Request(name, PROMPT, max_tokens, params)


def test_equal_seeds_draw_equal_answers_side_by_side_and_one_after_the_other() -> None:
    world = make_world(sampler=Sampler())
    answers = world.run([make_request("a", seed=7), make_request("b", seed=7)])
    answers = world.run([make_request("c", seed=7)])
    assert answers["a"].said == answers["b"].said == answers["c"].said


def test_other_seeds_and_other_choices_draw_other_answers() -> None:
    requests = [make_request(f"{s}.{c}", seed=s, choice=c) for s in range(4) for c in range(4)]
    answers = make_world(sampler=Sampler()).run(requests)
    assert len({tuple(each.tokens) for each in answers.values()}) == 16


@pytest.mark.parametrize("seed", range(4))
def test_neighbours_line_and_preemptions_do_not_touch_the_draw(seed: int) -> None:
    rng = Random(seed)
    mine = [make_request("x", seed=seed), make_request("y", seed=seed, choice=1)]
    expected = make_world(sampler=Sampler()).run(mine)
    crowd = make_requests(rng, 8, block_size=4, longest=12, most_new=20)
    crowd.insert(rng.randrange(9), mine[0])
    crowd.append(mine[1])
    world = make_world(Setting(num_blocks=(12,), max_num_batched_tokens=rng.choice([1, 5, 32])), sampler=Sampler())
    answers = world.run(crowd)
    assert sum(each.preemptions for each in answers.values()) > 0
    for request in mine:
        assert answers[request.id].said == expected[request.id].said


def test_a_longer_answer_begins_with_the_shorter_one() -> None:
    short, long = make_request("short", max_tokens=9), make_request("long", max_tokens=30)
    answers = make_world(sampler=Sampler()).run([short, long])
    assert answers["long"].tokens[:9] == answers["short"].tokens


def test_a_position_draws_the_same_whether_it_was_prompt_or_output_before() -> None:
    """The draw knows no step count: an answer continued from its own middle goes on as it did."""
    world = make_world(sampler=Sampler())
    whole = world.run([make_request("whole", seed=5, max_tokens=20)])["whole"].tokens
    rest = msgspec.structs.replace(make_request("rest", seed=5, max_tokens=11), prompt=(*PROMPT, *whole[:9]))
    assert world.run([rest])["rest"].tokens == whole[9:]
