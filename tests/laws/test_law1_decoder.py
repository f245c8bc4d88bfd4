"""Law 1 with the real parts: decoder, pool, cache and sampler in float64, where only order of summation differs.

Tokens are equal and logprobs agree to 1e-9 of what the model gives alone, in one piece, with nothing cached.
"""

from random import Random

import msgspec
import pytest

from model.sampling_params import SamplingParams
from server.engine.request import Request
from tests.helpers.tiny_models import alone, make_real_world, tiny_decoder
from tests.helpers.workloads import make_requests, scatter
from tests.helpers.worlds import Answer, Setting

LLAMA = tiny_decoder((None, None))
GEMMA = tiny_decoder((6, None, 6))
DECODERS = {"llama": (LLAMA, (None,)), "gemma": (GEMMA, (None, 6))}


def expect_same(answer: Answer, expected: Answer) -> None:
    assert (answer.tokens, answer.finish) == (expected.tokens, expected.finish)
    assert len(answer.logprobs) == len(expected.logprobs)
    for mine, its in zip(answer.logprobs, expected.logprobs, strict=True):
        assert mine.logprob == pytest.approx(its.logprob, abs=1e-9)
        assert mine.top_ids == its.top_ids
        assert mine.top_logprobs == pytest.approx(its.top_logprobs, abs=1e-9)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("seed", range(4))
def test_a_crowd_changes_no_answer(name: str, seed: int) -> None:
    decoder, windows = DECODERS[name]
    rng = Random(seed)
    requests = make_requests(rng, 10, block_size=4, longest=20, most_new=14)
    setting = Setting(
        windows,
        num_blocks=tuple(9 + rng.choice([0, 6]) for _ in windows),
        max_num_seqs=rng.choice([4, 12]),
        max_num_batched_tokens=rng.choice([5, 16, 40]),
        prefix_cache=seed != 3,
    )
    world = make_real_world(decoder, setting)
    answers = world.play(scatter(rng, requests, over=12))
    for request in requests:
        expect_same(answers[request.id], alone(decoder, request))


PROMPT = tuple(Random(1).randrange(24) for _ in range(33))
REQUEST = Request("x", PROMPT, 12, SamplingParams(temperature=0.9, seed=2, num_logprobs=3))


@pytest.mark.parametrize("name", DECODERS)
def test_pieces_and_a_warm_cache_change_nothing(name: str) -> None:
    decoder, windows = DECODERS[name]
    expected = alone(decoder, REQUEST)
    for size in (1, 3, 4, 8, 16, 31, 64):
        world = make_real_world(decoder, Setting(windows, (40,) * len(windows), max_num_batched_tokens=size))
        expect_same(world.run([REQUEST])["x"], expected)
        again = world.run([msgspec.structs.replace(REQUEST, id="again")])["again"]
        assert again.cached_tokens == 32
        expect_same(again, expected)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_preemptions_change_nothing(name: str, prefix_cache: bool) -> None:
    decoder, windows = DECODERS[name]
    older = msgspec.structs.replace(REQUEST, id="older", prompt=PROMPT[:2], max_tokens=50)
    younger = msgspec.structs.replace(REQUEST, id="younger", prompt=PROMPT[5:20], max_tokens=16)
    world = make_real_world(decoder, Setting(windows, (14,) * len(windows), prefix_cache=prefix_cache))
    answers = world.run([older, REQUEST, younger])
    assert answers["x"].preemptions + answers["younger"].preemptions >= 1
    for request in (older, REQUEST, younger):
        expect_same(answers[request.id], alone(decoder, request))


def test_the_answer_depends_on_all_of_the_prompt() -> None:
    """Else the tests above would prove little: a change of the first token must be seen 32 tokens later."""
    for decoder, _ in DECODERS.values():
        other = msgspec.structs.replace(REQUEST, prompt=((PROMPT[0] + 1) % 24, *PROMPT[1:]))
        mine, its = alone(decoder, REQUEST), alone(decoder, other)
        assert abs(mine.logprobs[0].logprob - its.logprobs[0].logprob) > 1e-4


def test_a_neighbour_whose_numbers_are_not_finite_changes_nothing() -> None:
    """Its keys and values are NaN in blocks that others get after it, also in the middle of a long prompt."""
    rng = Random(3)
    good = [
        Request(f"{i}", tuple(rng.randrange(3) for _ in range(9 + i)), 6, SamplingParams(temperature=0.0))
        for i in range(6)
    ]
    expected = {each.id: alone(GEMMA, each) for each in good}
    unused = min(set(range(3, 24)) - {token for each in expected.values() for token in each.tokens})
    broken = tiny_decoder((6, None, 6), broken_token=unused)
    bad = [Request(f"bad{i}", (*[1] * (3 + 8 * i), unused, *[2] * 9), 4, SamplingParams()) for i in range(3)]
    setting = Setting((None, 6), (12, 12), max_num_seqs=4, max_num_batched_tokens=7, prefix_cache=False)
    answers = make_real_world(broken, setting).run([good[0], bad[0], *good[1:3], *bad[1:], *good[3:]])
    assert {answers[each.id].error for each in bad} == {
        "the model failed: FloatingPointError('hidden states are not finite')"
    }
    for request in good:
        expect_same(answers[request.id], expected[request.id])
