"""Law 1 on the native kernels, with the real engine, cache and sampler: tokens and logprobs are the same bits.

Compared with what a request gets alone, its prompt in one piece, nothing cached, two threads.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import msgspec
import pytest
import torch

from cache.pool import KVPool
from model.decoder import Decoder
from model.native_runner import NativeRunner
from model.sampling_params import SamplingParams
from model.wishes import wish_of
from server.engine.request import Request
from tests.helpers.native_models import config_of, make_both
from tests.helpers.native_teams import native_team
from tests.helpers.tiny_models import alone, make_real_world
from tests.helpers.workloads import make_requests, scatter
from tests.helpers.worlds import Answer, Setting, World


def runner_on(threads: int) -> Callable[[Decoder, KVPool], NativeRunner]:
    def make(decoder: Decoder, pool: KVPool) -> NativeRunner:
        return NativeRunner(decoder, pool, native_team(threads), max_tokens=1024, max_len=1024)

    return make


@dataclass(frozen=True)
class Model:
    """A family, how its weights are stored, the type of its cache, and the windows of its KV groups."""

    family: str
    kind: str
    kv_dtype: torch.dtype
    windows: tuple[int | None, ...]

    def world(self, setting: Setting, *, threads: int = 2) -> World:
        return make_real_world(decoder_of(self), setting, runner=runner_on(threads), kv_dtype=self.kv_dtype)

    def roomy(self, *, size: int = 512, num_seqs: int = 40, blocks: int = 700, cached: bool = True) -> Setting:
        groups = len(self.windows)
        return Setting(self.windows, (blocks,) * groups, 16, num_seqs, max(size, 1), prefix_cache=cached)


MODELS = {
    "llama 4-bit": Model("llama", "Q4_1", torch.bfloat16, (None,)),
    "llama float": Model("llama", "F32", torch.float32, (None,)),
    "gemma 8-bit, int8 cache": Model("gemma3", "Q8_0", torch.int8, (None, 9)),
    "mistral bfloat16": Model("mistral window", "BF16", torch.bfloat16, (7,)),
}


@cache
def decoder_of(model: Model) -> Decoder:
    return make_both(config_of(model.family), model.kind).native


known: dict[tuple[Model, bytes], Answer] = {}


def expected(model: Model, request: Request) -> Answer:
    key = model, msgspec.msgpack.encode(msgspec.structs.replace(request, id=""))
    if key not in known:
        known[key] = alone(decoder_of(model), request, runner=runner_on(2), kv_dtype=model.kv_dtype)
    return known[key]


def expect_as_alone(model: Model, request: Request, answer: Answer) -> None:
    its = expected(model, request)
    assert answer.error is None
    assert answer.said == its.said


def play_crowd(model: Model, seed: int, *, threads: int) -> tuple[list[Request], dict[str, Answer]]:
    """A random crowd in a tight engine."""
    rng = Random(seed)
    requests = make_requests(rng, 12, block_size=4, longest=40, most_new=16)
    setting = Setting(
        model.windows,
        num_blocks=tuple(15 + rng.choice([0, 9]) for _ in model.windows),
        max_num_seqs=rng.choice([4, 12]),
        max_num_batched_tokens=rng.choice([5, 16, 40]),
        prefix_cache=seed != 2,
    )
    return requests, model.world(setting, threads=threads).play(scatter(rng, requests, over=12))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_crowd_changes_no_bit(name: str, threads: int, seed: int) -> None:
    requests, answers = play_crowd(MODELS[name], seed, threads=threads)
    for request in requests:
        expect_as_alone(MODELS[name], request, answers[request.id])


def test_the_crowds_are_preempted_and_find_things_cached() -> None:
    reached: Counter[str] = Counter()
    for seed in range(3):
        for each in play_crowd(MODELS["llama 4-bit"], seed, threads=2)[1].values():
            reached["preempted"] += each.preemptions > 0
            reached["cached"] += each.cached_tokens > 0
    assert min(reached["preempted"], reached["cached"]) >= 2, reached


def asked(name: str, *, length: int, new: int = 6, seed: int = 0) -> Request:
    prompt = tuple(Random(seed).randrange(61) for _ in range(length))
    params = SamplingParams(temperature=0.9 if seed % 2 else 0.0, seed=seed, num_logprobs=3)
    return Request(name, prompt, new, params)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", range(1, 34))
def test_a_batch_of_any_size_changes_no_bit(name: str, count: int) -> None:
    model = MODELS[name]
    requests = [asked(f"{i}", length=3 + 5 * i % 40, seed=i) for i in range(count)]
    answers = model.world(model.roomy(), threads=1 + count % 2).run(requests)
    for request in requests:
        expect_as_alone(model, request, answers[request.id])


LONG = asked("long", length=601, new=8, seed=7)
SIZES = [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 300, 511, 512]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", SIZES)
def test_pieces_of_any_size_and_a_warm_cache_change_no_bit(name: str, size: int) -> None:
    model = MODELS[name]
    world = model.world(model.roomy(size=size), threads=1 + size % 2)
    expect_as_alone(model, LONG, world.run([LONG])["long"])
    for cut in (600, 333, 16):
        again = msgspec.structs.replace(LONG, id=f"{cut}", prompt=LONG.prompt[:cut])
        answer = world.run([again])[f"{cut}"]
        assert answer.cached_tokens == (cut - 1) // 16 * 16
        expect_as_alone(model, msgspec.structs.replace(again, id="alone"), answer)


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if None in model.windows])
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_preemptions_change_no_bit(name: str, cached: bool, threads: int) -> None:
    model = MODELS[name]
    requests = [asked("older", length=2, new=50, seed=1)]
    requests += [asked(f"{i}", length=20 + 5 * i, new=14, seed=2 + i) for i in range(2)]
    setting = Setting(model.windows, (14,) * len(model.windows), prefix_cache=cached)
    answers = model.world(setting, threads=threads).run(requests)
    assert sum(each.preemptions for each in answers.values()) >= 1
    for request in requests:
        expect_as_alone(model, request, answers[request.id])


@pytest.mark.parametrize("name", MODELS)
def test_the_answer_depends_on_all_of_the_prompt(name: str) -> None:
    """Else the tests above would prove little: a change of the first token must be seen in the logprobs."""
    model = MODELS[name]
    if None not in model.windows:
        pytest.skip("nothing sees the beginning of a long prompt directly")
    other = msgspec.structs.replace(LONG, prompt=((LONG.prompt[0] + 1) % 61, *LONG.prompt[1:]))
    assert expected(model, LONG).logprobs != expected(model, other).logprobs


def test_a_neighbour_whose_numbers_are_not_finite_changes_no_bit() -> None:
    """Its keys and values are NaN in blocks that others get after it, also in the middle of a long prompt."""
    config = config_of("gemma3", tie_word_embeddings=False)
    sound = make_both(config, "F32").native
    good = [asked(f"{i}", length=9 + i, seed=2 * i) for i in range(6)]
    good = [msgspec.structs.replace(each, prompt=tuple(token % 30 for token in each.prompt)) for each in good]
    its = {each.id: alone(sound, each, runner=runner_on(2)) for each in good}
    unused = min(set(range(30, 61)) - {token for each in its.values() for token in each.tokens})
    broken = make_both(config, "F32", broken_token=unused).native
    bad = [Request(f"bad{i}", (*[1] * (3 + 8 * i), unused, *[2] * 9), 4, SamplingParams()) for i in range(3)]
    setting = Setting((None, 9), (12, 12), max_num_seqs=4, max_num_batched_tokens=7, prefix_cache=False)
    world = make_real_world(broken, setting, runner=runner_on(2))
    answers = world.run([good[0], bad[0], *good[1:3], *bad[1:], *good[3:]])
    assert {answers[each.id].error for each in bad} == {
        "the model failed: FloatingPointError('hidden states are not finite')"
    }
    for request in good:
        assert answers[request.id].said == its[request.id].said


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [2, 9, 33])
def test_rows_served_from_summaries_and_whole_rows_change_each_other_by_no_bit(name: str, count: int) -> None:
    """Greedy ones, draws among few, and such as need all logits; with and without logprobs; and a bias of nothing."""
    model, rng = MODELS[name], Random(count)
    requests, twins = [], []
    for i in range(count):
        params = SamplingParams(
            temperature=rng.choice([0.0, 0.8]),
            top_k=rng.choice([0, 1, 5, 40]),
            top_p=rng.choice([1.0, 0.9]),
            repetition_penalty=rng.choice([1.0, 1.0, 1.3]),
            num_logprobs=rng.choice([None, 0, 3, 20]),
            seed=i,
        )
        request = Request(f"{i}", tuple(rng.randrange(61) for _ in range(3 + 4 * i % 30)), 6, params)
        requests.append(request)
        twins.append(msgspec.structs.replace(request, id=f"twin{i}", params=replace(params, logit_bias={5: 0.0})))
    assert {wish_of(each.params).whole for each in requests} == {True, False}
    answers = model.world(model.roomy(num_seqs=70)).run(requests + twins)
    for request, twin in zip(requests, twins, strict=True):
        expect_as_alone(model, request, answers[request.id])
        assert answers[twin.id].said == answers[request.id].said
