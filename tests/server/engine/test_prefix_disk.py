"""When bytes on disk mean the same to another engine, and what a folder that can't be used costs."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.sampling_params import SamplingParams
from server.config import EngineConfig
from server.engine import prefix_disk
from server.engine.compose import compose
from server.engine.prefix_disk import code_digest, model_digest, open_disk
from server.engine.reloading import NoDisk
from server.engine.request import Request
from tests.helpers.checkpoints import tiny_hf
from tests.helpers.on_disk import files_in
from tests.helpers.waiting import eventually_blocking

MIB = 2**20
REQUEST = Request("x", tuple(number % 7 for number in range(57)), 2, SamplingParams(temperature=0.0))


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    path = str(tiny_hf(tmp_path / "model"))
    folder = str(tmp_path / "kept")
    return EngineConfig(path, kv_cache_bytes=8 * MIB, threads=1, backend="torch", prefix_cache_dir=folder)


def cached_tokens(config: EngineConfig) -> int:
    """How much of a prompt a new engine with these settings finds. What it computes is written when this returns."""
    engine, _ = compose(config, lambda what, fraction: None)
    assert not engine.has_work
    engine.submit([REQUEST])
    events: list[Any] = []
    while not any(event.finish for event in events):
        events += engine.step().events
    assert [event.error for event in events if event.error] == []
    wanted = (len(REQUEST.prompt) + 1) // config.block_size

    def written() -> bool:
        engine.step()
        return len(files_in(Path(config.prefix_cache_dir or ""))) >= wanted and not engine.has_work

    if config.prefix_cache_dir:
        eventually_blocking(written)
    return int(events[-1].cached_tokens)


def test_the_same_model_and_settings_find_what_was_kept_even_under_another_name(
    config: EngineConfig, tmp_path: Path
) -> None:
    assert [cached_tokens(config), cached_tokens(config)] == [0, 48]
    shutil.copytree(config.model_path, tmp_path / "copy")
    same = replace(config, model_path=str(tmp_path / "copy"), max_num_seqs=3, max_model_len=100, threads=2)
    assert cached_tokens(same) == 48


@pytest.mark.parametrize(
    "change",
    [
        {"block_size": 8},
        {"dtype": "bfloat16"},
        {"dtype": "bfloat16", "kv_cache_dtype": "float32"},
        {"kv_cache_dtype": "bfloat16"},
        {"quantize": "int8"},
    ],
)
def test_another_form_of_keys_and_values_finds_nothing(config: EngineConfig, change: dict[str, Any]) -> None:
    assert cached_tokens(config) == 0
    assert cached_tokens(replace(config, **change)) == 0


def test_another_model_and_another_version_of_the_code_find_nothing(
    config: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cached_tokens(config) == 0
    weights = next(Path(config.model_path).glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1  # the last tensor's last number but one, a little
    weights.write_bytes(content)
    assert cached_tokens(config) == 0
    monkeypatch.setattr(prefix_disk, "code_digest", lambda: "another")
    assert cached_tokens(config) == 0


def test_a_digest_is_of_all_weights_and_of_nothing_else(tmp_path: Path) -> None:
    folder = tiny_hf(tmp_path / "model")
    before = model_digest(folder)
    (folder / "README.md").write_text("a note")
    assert model_digest(folder) == before
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert model_digest(folder) != before
    assert code_digest() == code_digest() != model_digest(folder / "config.json")


def test_a_folder_that_cannot_be_used_is_no_reason_not_to_serve(config: EngineConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    useless = replace(config, prefix_cache_dir=str(tmp_path / "file"))
    nothing: Any = None
    disk = open_disk(useless, (), nothing, nothing)
    assert isinstance(disk, NoDisk)
    stats = disk.stats()
    assert stats is not None
    assert str(tmp_path / "file") in stats.warning
    assert disk.stats() == stats, "whoever asked first does not keep it from the others"
    engine, _ = compose(useless, lambda what, fraction: None)
    assert engine.stats().disk == stats


def test_without_a_folder_nothing_is_reported(config: EngineConfig) -> None:
    nothing: Any = None
    disk = open_disk(replace(config, prefix_cache_dir=None), (), nothing, nothing)
    assert disk.stats() is None
