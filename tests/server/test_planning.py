"""`kvell plan` says in a table and in JSON what the engine's rules say."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from server.cli import app
from server.config import EngineConfig
from server.engine.planning import make_plan
from server.planning import MATTER, size
from server.settings import SETTINGS
from tests.helpers.checkpoints import tiny_gguf

runner = CliRunner()


def plan(*arguments: str) -> Any:
    return runner.invoke(app, ["plan", *arguments], env={"COLUMNS": "120"})


@pytest.fixture
def windowed(tmp_path: Path) -> str:
    return str(tiny_gguf(tmp_path / "windowed.gguf", "gemma3"))


def test_the_json_is_the_plan(windowed: str) -> None:
    result = plan(windowed, "--memory", "2GiB", "--kv-cache-dtype", "float32", "--block-size", "8", "--json")
    assert result.exit_code == 0, result.output
    expected = make_plan(EngineConfig(windowed, kv_cache_dtype="float32", block_size=8), memory_bytes=2 << 30)
    found = json.loads(result.stdout)
    assert (found["model"], found["memory_bytes"]) == ("windowed", 2 << 30)
    assert (found["cache_tokens"], found["cache_bytes"]) == (expected.cache_tokens, expected.cache_bytes)
    assert [group["window"] for group in found["groups"]] == [group.window for group in expected.groups]
    assert found["sequences"] == {str(length): number for length, number in expected.sequences}


def test_the_tables_say_where_memory_goes_and_what_fits(windowed: str) -> None:
    result = plan(windowed, "--kv-cache-memory", "16MiB", "--max-num-seqs", "8")
    assert result.exit_code == 0, result.output
    made = make_plan(EngineConfig(windowed, kv_cache_bytes=16 << 20, max_num_seqs=8))
    for part in ("weights", "KV cache", f"{made.cache_tokens:,} tokens", "the last", "all", "--kv-cache-memory"):
        assert part in result.stdout
    assert f"{made.groups[0].bytes_per_token:,}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["/nowhere.gguf"], 1, "no such file"),
        (["--memory", "much"], 2, '--memory (KVELL_MEMORY) is "much"'),
        (["--block-size", "0"], 2, "--block-size"),
        (["MODEL", "--kv-cache-memory", "900GiB", "--memory", "1GiB"], 1, "allowed: at most"),
    ],
)
def test_what_can_t_be_planned_is_one_line(windowed: str, arguments: list[str], code: int, message: str) -> None:
    result = plan(*[windowed if each == "MODEL" else each for each in arguments])
    assert result.exit_code == code
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_settings_that_matter_are_settings() -> None:
    assert set(MATTER) <= {setting.name for setting in SETTINGS}


def test_sizes_for_people() -> None:
    assert [size(number) for number in (1 << 20, 1023 << 20, 1536 << 20)] == ["1 MiB", "1,023 MiB", "1.50 GiB"]
