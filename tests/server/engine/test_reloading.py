"""Reading goes before computing, is bounded in bytes a step, waits for no one for ever, and is shared."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cache.disk import DiskCache, Load
from cache.manager import CacheManager
from model.sampling_params import SamplingParams
from server.engine import reloading
from server.engine.reloading import Reloader, Reloading
from server.engine.request import Request
from tests.helpers.fake_model import BAD_LOGITS
from tests.helpers.on_disk import files_in, hold, kept_in, totals
from tests.helpers.worlds import Setting, World, make_world, solo

SETTING = Setting(num_blocks=(60,), max_num_batched_tokens=32)
PROMPT = tuple(number * number % 11 for number in range(81))
REQUEST = Request("x", PROMPT, 3, SamplingParams(temperature=0.0))
NUM_BLOCKS = 20  # of four tokens


def named(request_id: str, **changes: Any) -> Request:
    return msgspec.structs.replace(REQUEST, id=request_id, **changes)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder with the prompt's blocks."""
    with kept_in(tmp_path) as disk:
        make_world(SETTING, disk=disk).run([REQUEST])
    assert len(files_in(tmp_path)) == NUM_BLOCKS
    return tmp_path


@pytest.fixture
def world(kept: Path) -> Iterator[World]:
    with kept_in(kept) as disk:
        yield make_world(SETTING, disk=disk)


def reloader(world: World) -> Any:
    return world.engine._scheduler.disk


def expect_right(world: World) -> None:
    for answer in world.answers.values():
        assert (answer.tokens, answer.finish) == (solo(REQUEST, (None,)).tokens, "length")
    world.expect_all_blocks_back()


def test_what_was_read_is_not_computed_and_counts_as_cached(world: World) -> None:
    assert world.run([REQUEST])["x"].cached_tokens == 80
    assert sum(stats.prompt_tokens for stats in world.history) == 1
    expect_right(world)


def test_many_with_one_prompt_read_it_once(world: World) -> None:
    world.run([named(str(number)) for number in range(6)])
    assert totals(world)[0] == NUM_BLOCKS
    assert {answer.cached_tokens for answer in world.answers.values()} == {80}
    expect_right(world)


def test_what_is_in_memory_is_not_read(world: World) -> None:
    world.run([named("short", prompt=PROMPT[:41], max_tokens=0)])
    assert totals(world)[0] == 10
    world.run([REQUEST])
    assert totals(world)[0] == NUM_BLOCKS


def test_a_step_fills_a_bounded_number_of_bytes(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = named("other", prompt=PROMPT[::-1])
    with kept_in(kept) as disk:
        make_world(SETTING, disk=disk).run([other])
    with kept_in(kept) as disk:
        world = make_world(SETTING, disk=disk)
        monkeypatch.setattr(reloading, "FILL_BYTES", 3 * reloader(world)._disk.block_bytes)
        world = make_world(SETTING, disk=disk)
        filled: list[int] = []
        its = reloader(world)._disk
        fill = its.fill
        monkeypatch.setattr(
            its, "fill", lambda load, first, blocks: (filled.append(len(blocks[0])), fill(load, first, blocks))
        )
        starts: list[int] = []
        monkeypatch.setattr(reloader(world), "begin_step", wrapped(reloader(world).begin_step, starts, filled))
        world.run([REQUEST, other])
        assert max(filled) == 3
        assert sum(filled) == 2 * NUM_BLOCKS
        assert max(later - earlier for earlier, later in pairwise(starts)) <= 3 + 2, (
            "one more may begin while a byte is left"
        )


def wrapped(begin_step: Callable[[], None], starts: list[int], filled: list[int]) -> Callable[[], None]:
    def begin() -> None:
        starts.append(sum(filled))
        begin_step()

    return begin


def test_streams_go_on_while_another_waits_for_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloader(world)._disk, "load", never_done)
    world.engine.submit([named("stream", prompt=PROMPT[:3], max_tokens=50)])
    world.step()
    world.engine.submit([REQUEST])
    for _ in range(20):
        before = len(world.answers["stream"].tokens)
        world.step()
        assert len(world.answers["stream"].tokens) == before + 1
    assert "x" not in world.answers
    world.engine.cancel(["stream", "x"])
    world.step()
    world.expect_all_blocks_back()


def never_done(names: Any, start: int, count: int) -> Load:
    nothing: Any = [None] * count
    return Load(names, start, nothing)


def test_a_disk_that_hangs_is_given_up_and_not_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Load] = []
    monkeypatch.setattr(reloader(world)._disk, "load", lambda *given: (loads.append(never_done(*given)), loads[-1])[1])
    monkeypatch.setattr(reloading, "NAP_S", 0.0)
    world.engine.submit([REQUEST])
    for _ in range(3):
        world.step()
    assert "x" not in world.answers
    world.clock.now += reloading.PATIENCE_S
    world.run([named("next")])
    assert [world.answers[name].cached_tokens for name in ("x", "next")] == [0, 80]
    assert len(loads) == 1
    expect_right(world)


def test_whoever_is_cancelled_while_it_reads_gives_everything_back(world: World) -> None:
    world.engine.submit([REQUEST])
    world.step()
    assert world.manager.stats()[0].used > 0
    world.engine.cancel(["x"])
    world.expect_all_blocks_back()
    world.run([named("next")])
    assert world.answers["next"].cached_tokens == 80


def test_a_tight_cache_reads_and_preempts_and_loses_nothing(kept: Path) -> None:
    tight = Setting(num_blocks=(24,), max_num_batched_tokens=32)
    with kept_in(kept) as disk:
        world = make_world(tight, disk=disk)
        world.run([named(str(number), prompt=PROMPT[: 81 - number], max_tokens=3) for number in range(5)])
        assert totals(world)[0] > 0
        world.expect_all_blocks_back()


def test_prompts_that_are_scored_are_computed(world: World) -> None:
    answer = world.run([named("x", prompt_logprobs=0)])["x"]
    assert answer.cached_tokens == 0
    assert len(answer.prompt_logprobs) == 80


def test_what_a_neighbour_computed_meanwhile_is_not_filled_again(world: World) -> None:
    gate = hold(reloader(world)._disk)
    world.engine.submit([REQUEST])
    world.step()
    world.engine.submit([named("scored", prompt=PROMPT[:17], max_tokens=0, prompt_logprobs=0)])
    while not world.answers.get("scored") or not world.answers["scored"].finish:
        world.step()
    world.step()
    gate.set()
    world.run([])
    assert world.answers["x"].cached_tokens == 80
    assert world.answers["x"].tokens == solo(REQUEST, (None,)).tokens
    assert totals(world)[0] == NUM_BLOCKS


def test_what_a_failed_request_used_is_removed_too(kept: Path) -> None:
    with kept_in(kept) as disk:
        world = make_world(SETTING, disk=disk)
        failed = world.run([named("bad", prompt=(*PROMPT[:41], BAD_LOGITS))])["bad"]
        assert (failed.finish, failed.cached_tokens) == ("error", 40)
    assert len(files_in(kept)) == NUM_BLOCKS - 10


def test_a_cancelled_prompt_is_not_kept_and_a_cancelled_answer_is(tmp_path: Path) -> None:
    with kept_in(tmp_path) as disk:
        world = make_world(SETTING, disk=disk)
        world.engine.submit([REQUEST])
        world.step()
        world.engine.cancel(["x"])
        world.run([named("other", prompt=(5,) * 9, max_tokens=20)])
    assert len(files_in(tmp_path)) == (9 + 19) // 4


def test_a_block_too_large_for_a_step_is_computed(tmp_path: Path) -> None:
    setting = Setting(num_blocks=(60,), block_size=8, max_num_batched_tokens=5)
    for _ in range(2):
        with kept_in(tmp_path) as disk:
            world = make_world(setting, disk=disk)
            assert world.run([REQUEST])["x"].cached_tokens == 0
            expect_right(world)


def test_the_engine_is_woken_for_what_the_disk_has_done(kept: Path) -> None:
    caches: list[DiskCache] = []
    with kept_in(kept) as disk:

        def make(manager: CacheManager, pool: Any) -> Reloading:
            made: Any = disk(manager, pool)
            caches.append(made._disk)
            return made  # type: ignore[no-any-return]

        world = make_world(SETTING, disk=make)
        woken: list[bool] = []
        world.engine.on_ready(lambda: woken.append(True))
        world.run([REQUEST])
        assert woken
        assert isinstance(reloader(world), Reloader)
