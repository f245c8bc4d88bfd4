"""Law 3: no block is lost, whatever mix of endings, cancels, preemptions and failures there was.

`World.play` checks the cache's invariants after every step, and at the end that free + cached is everything.
"""

from collections import Counter
from random import Random

import pytest

from model.sampling_params import SamplingParams
from server.engine.request import Request
from tests.helpers.fake_model import BAD_LOGITS, NOT_FINITE, RAISES
from tests.helpers.workloads import SHAPES, make_requests, poison, scatter
from tests.helpers.worlds import Setting, World, make_world, random_setting, solo

POISONS = (RAISES, NOT_FINITE, BAD_LOGITS)


def play_workload(seed: int) -> tuple[World, list[Request]]:
    """A crowd of which a quarter is cancelled and a quarter fails."""
    rng = Random(seed)
    longest, most_new = rng.choice(SHAPES)
    setting = random_setting(rng, longest=longest + most_new)
    requests = make_requests(rng, rng.randint(5, 20), block_size=setting.block_size, longest=longest, most_new=most_new)
    requests = poison(rng, requests, POISONS, share=0.25)
    world = make_world(setting)
    world.play(scatter(rng, requests, over=20, cancel_share=0.25))
    return world, requests


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_block_is_lost_and_no_neighbour_harmed(first: int) -> None:
    endings: Counter[str | None] = Counter()
    for seed in range(first, first + 20):
        world, requests = play_workload(seed)
        for request in requests:
            answer = world.answers[request.id]
            endings[answer.finish] += 1
            if answer.finish == "error":
                assert set(POISONS) & set(request.prompt), f"{request.id} did nothing wrong"
            elif answer.finish != "cancelled":
                assert answer.said == solo(request, world.setting.windows).said
    assert min(endings[each] for each in ("cancelled", "error", "length", "stop")) >= 5, endings


def test_everything_is_cancelled_at_once() -> None:
    for seed in range(20):
        rng = Random(seed)
        setting = random_setting(rng, longest=64)
        requests = make_requests(rng, 12, block_size=setting.block_size)
        world = make_world(setting)
        world.engine.submit(requests)
        for _ in range(rng.randint(0, 25)):
            world.step()
        world.engine.cancel([each.id for each in requests])
        world.expect_all_blocks_back()
        world.step()
        assert not world.engine.has_work


def test_a_prefix_is_matched_by_its_tokens_within_its_own_space_only() -> None:
    """Each space holds the same prompts with other keys; nothing crosses, also when all blocks have changed hands."""
    prompt = tuple(Random(0).randrange(3) for _ in range(24))
    world = make_world(Setting(num_blocks=(30,)))
    for space, salt in [("", ""), ("a", ""), ("", "a"), ("a", "a")]:
        for again in (False, True):
            name = f"{space}/{salt}/{again}"
            answers = world.run([Request(name, prompt, 4, SamplingParams(temperature=0.0), space, salt)])
            assert answers[name].cached_tokens == (20 if again else 0)


def test_a_cache_full_of_old_prefixes_serves_new_ones() -> None:
    world = make_world(Setting(num_blocks=(20,), max_num_seqs=4))
    rng = Random(1)
    for number in range(40):
        requests = make_requests(rng, 3, block_size=4, longest=40, most_new=8, prefix=f"{number}.")
        answers = world.run(requests)
        for request in requests:
            assert answers[request.id].said == solo(request, (None,)).said
    (usage,) = world.manager.stats()
    assert usage.cached > 15
