"""Laws 1 and 3 with a prefix cache that outlives the process: what was read gives the same bits as what was computed.

An engine that ended and another that begins on the same folder stand for a restart; tests/e2e does it for real.
"""

from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import msgspec
import pytest

from model.sampling_params import SamplingParams
from server.engine.request import Request
from tests.helpers.on_disk import files_in, kept_in, totals
from tests.helpers.tiny_models import VOCAB, alone, make_real_world, tiny_decoder
from tests.helpers.workloads import SHAPES, make_requests, scatter
from tests.helpers.worlds import Setting, World, make_world, random_setting, solo
from tests.laws.test_law1_native import MODELS, decoder_of, expect_as_alone, runner_on

PARAMS = SamplingParams(temperature=0.8, seed=3, num_logprobs=2)


def a_prompt(length: int, vocab: int, seed: int = 0) -> tuple[int, ...]:
    rng = Random(seed)
    return tuple(rng.randrange(vocab) for _ in range(length))


@pytest.mark.parametrize("name", MODELS)
def test_native_kernels_give_the_same_bits_cold_warm_and_from_disk(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    vocab = decoder_of(model).config.vocab_size
    request = Request("x", a_prompt(100, vocab), 12, PARAMS)
    cached = []
    for _ in range(2):
        with kept_in(tmp_path) as disk:
            world = make_real_world(
                decoder_of(model), model.roomy(), runner=runner_on(2), kv_dtype=model.kv_dtype, disk=disk
            )
            for place in ("first", "again"):
                answer = world.run([msgspec.structs.replace(request, id=place)])[place]
                expect_as_alone(model, request, answer)
                cached.append(answer.cached_tokens)
    assert cached == [0, 96, 96, 96]
    assert totals(world)[0] == 6, "six blocks of 16 came from disk, the second time from memory"


@pytest.mark.parametrize("windows", [(None, None), (None, 5, None, 9)])
def test_torch_gives_the_same_bits_cold_warm_and_from_disk(windows: tuple[int | None, ...], tmp_path: Path) -> None:
    decoder = tiny_decoder(windows)
    request = Request("x", a_prompt(41, VOCAB), 12, PARAMS)
    groups = tuple(sorted(set(windows), key=lambda window: window or 0))
    setting = Setting(groups, (40,) * len(groups))
    for cached_tokens in (0, 40):
        with kept_in(tmp_path) as disk:
            world = make_real_world(decoder, setting, disk=disk)
            answer = world.run([request])["x"]
        assert answer.said == alone(decoder, request).said
        assert answer.cached_tokens == cached_tokens


@cache
def play(seed: int, folder: Path) -> tuple[World, list[Request]]:
    """A random crowd, some of it cancelled, over blocks that crowds with the same prompts left behind."""
    rng = Random(seed)
    longest, most_new = rng.choice(SHAPES)
    setting = random_setting(rng, longest=longest + most_new)
    requests = make_requests(rng, rng.randint(3, 16), block_size=setting.block_size, longest=longest, most_new=most_new)
    for round_number in range(2):
        with kept_in(folder / str(seed), form=[str(setting.windows)]) as disk:
            world = make_world(setting, disk=disk if setting.prefix_cache else None)
            world.play(scatter(Random(seed + round_number), requests, over=30, cancel_share=0.1))
    return world, requests


def test_crowds_over_what_others_left_on_disk_change_no_answer_and_lose_no_block(tmp_path: Path) -> None:
    reached: Counter[str] = Counter()
    for seed in (0, 2, 6, 7, 8, 12):
        world, requests = play(seed, tmp_path)
        for request in requests:
            answer, expected = world.answers[request.id], solo(request, world.setting.windows)
            if answer.finish == "cancelled":
                assert answer.tokens == expected.tokens[: len(answer.tokens)]
            else:
                assert answer.said == expected.said
            reached["preempted"] += answer.preemptions > 0
            reached["cancelled"] += answer.finish == "cancelled"
        read, written, refused = totals(world)
        assert refused == 0
        reached["read"] += read
        reached["written"] += written
        reached["windows and read"] += read if len(world.setting.windows) > 1 else 0
    assert min(reached.values()) >= 1, reached


def test_a_spoiled_block_is_computed_again_removed_and_written_anew(tmp_path: Path) -> None:
    decoder, request = tiny_decoder((None, None)), Request("x", a_prompt(41, VOCAB), 4, PARAMS)
    setting = Setting((None,), (40,))
    with kept_in(tmp_path) as disk:
        make_real_world(decoder, setting, disk=disk).run([request])
    files = files_in(tmp_path)
    assert len(files) == 11
    for number, file in enumerate(files):
        spoil(file, number)
    with kept_in(tmp_path) as disk:
        world = make_real_world(decoder, setting, disk=disk)
        answer = world.run([request])["x"]
    assert (answer.said, answer.cached_tokens) == (alone(decoder, request).said, 0)
    with kept_in(tmp_path) as disk:
        answer = make_real_world(decoder, setting, disk=disk).run([request])["x"]
    assert (answer.said, answer.cached_tokens) == (alone(decoder, request).said, 40)


def spoil(file: Path, number: int) -> None:
    """In one of the ways in which files go bad."""
    record = bytearray(file.read_bytes())
    if number % 4 == 0:
        record = record[: len(record) // 2]
    elif number % 4 == 1:
        record += b"\0"
    else:
        record[-100 if number % 4 == 2 else 3] ^= 1
    file.write_bytes(record)


def test_one_owner_never_meets_what_another_left_on_disk(tmp_path: Path) -> None:
    setting = Setting((None,), (40,))
    base = Request("x", a_prompt(21, 13), 2, PARAMS)
    owners = [("", ""), ("alice", ""), ("bob", ""), ("alice", "salt"), ("", "alice")]
    for again in (False, True):
        with kept_in(tmp_path) as disk:
            world = make_world(setting, disk=disk)
            for number, (namespace, salt) in enumerate(owners):
                request = msgspec.structs.replace(base, id=str(number), namespace=namespace, cache_salt=salt)
                assert world.run([request])[str(number)].cached_tokens == (20 if again else 0)
    assert len(files_in(tmp_path)) == 5 * len(owners)


def test_what_a_failed_request_computed_is_not_on_disk(tmp_path: Path) -> None:
    decoder = tiny_decoder((None, None), broken_token=7)
    setting = Setting((None,), (60,))
    sound = a_prompt(20, 7)
    requests = [Request("bad", (*sound, 7, *sound), 4, PARAMS), Request("good", (*sound, *sound), 4, PARAMS)]
    with kept_in(tmp_path) as disk:
        world = make_real_world(decoder, setting, disk=disk)
        for request in requests:
            world.run([request])
    assert world.answers["bad"].finish == "error"
    assert len(files_in(tmp_path)) == (40 + 3) // 4
    with kept_in(tmp_path) as disk:
        world = make_real_world(decoder, setting, disk=disk)
        assert world.run(requests[:1])["bad"].finish == "error"
        assert world.run([msgspec.structs.replace(requests[1], id="after")])["after"].finish == "length"
