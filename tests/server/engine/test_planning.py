"""What is planned from the headers is what the engine does when it is composed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cache.groups import KVGroup
from model.checkpoint.source import open_checkpoint
from model.families.registry import to_model_config
from server.config import EngineConfig
from server.engine import planning
from server.engine.compose import choose_kinds, choose_rounding, compose
from server.engine.errors import StartupFailed
from server.engine.planning import ENGINE_BYTES, make_plan
from tests.helpers.checkpoints import tiny_gguf, tiny_hf

MIB = 2**20


def composed(config: EngineConfig) -> Any:
    return compose(config, lambda what, fraction: None)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kv_cache_dtype": "int8", "block_size": 8},
        {"kv_cache_dtype": "float32", "max_model_len": 100, "max_num_seqs": 3, "max_num_batched_tokens": 32},
    ],
    ids=["default", "int8", "small"],
)
def test_the_cache_is_the_one_that_a_server_reports(
    tmp_path: Path, family: str, backend: Any, changes: dict[str, Any]
) -> None:
    """Capped by what the sequences need, and not."""
    path = str(tiny_gguf(tmp_path / "m.gguf", family))
    for budget in (MIB, 64 * MIB):
        config = replace(EngineConfig(path, backend=backend, threads=1, kv_cache_bytes=budget), **changes)
        plan, (engine, ready) = make_plan(config), composed(config)
        assert (plan.cache_tokens, plan.cache_bytes) == (ready.cache_tokens, ready.cache_bytes)
        assert (plan.backend, plan.dtype, plan.kv_cache_dtype) == (ready.backend, ready.dtype, ready.kv_cache_dtype)
        assert plan.max_model_len == ready.max_model_len
        groups = [(each.free + each.used + each.cached, each.block_bytes) for each in engine.stats().groups]
        size = config.block_size
        assert [(group.num_blocks, size * group.bytes_per_token) for group in plan.groups] == groups


def packed_bytes(config: EngineConfig) -> int:
    """Of all matrices of the loaded model."""
    checkpoint, kinds = open_checkpoint(Path(config.model_path)), choose_kinds(config)
    rounding = choose_rounding(config, checkpoint, 1)
    read = rounding.stored if rounding else None
    model = kinds.backend.load(
        checkpoint, device=kinds.device, dtype=kinds.dtype, on_progress=lambda *done: None, read=read
    )
    layers = [(each.attention.qkv, each.attention.out, each.mlp.gate_up, each.mlp.down) for each in model.layers]
    weights: list[Any] = [model.embedding, model.head, *(linear.weight for layer in layers for linear in layer)]
    return sum(weight.num_bytes for weight in weights)


@pytest.mark.parametrize("quantize", ["none", "int8"])
def test_the_weights_take_what_was_planned(tmp_path: Path, quantize: Any) -> None:
    """Native kernels pad rows to eight, and norms are not counted here: within a few percent on a tiny model."""
    path = str(tiny_hf(tmp_path / "m", hidden_size=64, intermediate_size=96))
    config = EngineConfig(path, backend="native", threads=1, kv_cache_bytes=MIB, quantize=quantize)
    plan = make_plan(config)
    assert packed_bytes(config) == pytest.approx(plan.weights_bytes, rel=0.1)
    assert (plan.weights_bytes < plan.stored_bytes) == (quantize == "int8")


def test_torch_holds_every_value_in_its_own_type(tmp_path: Path) -> None:
    path = str(tiny_gguf(tmp_path / "m.gguf"))
    double = make_plan(EngineConfig(path, backend="torch", dtype="float64", kv_cache_bytes=MIB))
    single = make_plan(EngineConfig(path, backend="torch", dtype="float32", kv_cache_bytes=MIB))
    assert double.weights_bytes == 2 * single.weights_bytes
    assert double.stored_bytes == single.stored_bytes


def test_the_default_is_a_quarter_of_what_the_weights_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that long, for that many, that no cap is reached."""
    path = str(tiny_hf(tmp_path / "m", max_position_embeddings=1_000_000))
    config = EngineConfig(path, max_num_seqs=1000, max_num_batched_tokens=1000)
    plan = make_plan(config, memory_bytes=1000 * MIB)
    assert plan.cache_bytes == pytest.approx((1000 * MIB - plan.weights_bytes - ENGINE_BYTES) / 4, rel=0.001)
    monkeypatch.setattr(planning, "free_memory", lambda: 1000 * MIB)
    assert make_plan(config) == plan


def test_a_larger_cache_than_fits_is_refused(tmp_path: Path) -> None:
    config = EngineConfig(str(tiny_hf(tmp_path / "m")), kv_cache_bytes=900 * MIB)
    with pytest.raises(StartupFailed, match="--kv-cache-memory is 900 MiB; allowed: at most the 750 MiB"):
        make_plan(config, memory_bytes=1000 * MIB)
    with pytest.raises(StartupFailed, match="see --kv-cache-memory"):
        make_plan(replace(config, kv_cache_bytes=None), memory_bytes=ENGINE_BYTES)


def test_so_many_sequences_fit_and_not_one_more(tmp_path: Path) -> None:
    """256 tokens in blocks of 16 are 16 blocks; the windowed layers of gemma hold fewer."""
    path = str(tiny_hf(tmp_path / "m"))
    plan = make_plan(EngineConfig(path, kv_cache_bytes=2 * MIB, max_num_seqs=512))
    (group,) = plan.groups
    assert dict(plan.sequences) == {256: group.num_blocks // 16}
    assert plan.cache_tokens == group.num_blocks * 16


def test_the_ladder_ends_where_more_would_not_be_used(tmp_path: Path) -> None:
    path = str(tiny_hf(tmp_path / "m"))
    plan = make_plan(EngineConfig(path, kv_cache_bytes=MIB))
    assert [rung.full_sequences >= 64 for rung in plan.ladder] == [True]
    wide = make_plan(EngineConfig(str(tiny_hf(tmp_path / "w", max_position_embeddings=10**6)), kv_cache_bytes=MIB))
    assert len(wide.ladder) > 3
    tokens = [rung.tokens for rung in wide.ladder]
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize(("num_blocks", "expected"), [((33, 100), 2), ((100, 13), 3), ((100, 12), 2)])
def test_the_scarcest_group_says_how_many_sequences_fit(
    tmp_path: Path, num_blocks: tuple[int, int], expected: int
) -> None:
    """64 tokens are 16 blocks of 4; a window of 8 with chunks of 5 holds 4 of them at its worst; one block is null."""
    path = tiny_hf(tmp_path / "m")
    config = EngineConfig(str(path), block_size=4, max_num_batched_tokens=5)
    model = to_model_config(open_checkpoint(path).config)
    sizing = planning._Sizing(config, model, torch.float32, 64)
    groups = (KVGroup(None, (0,)), KVGroup(8, (1,)))
    assert sizing.sequences(groups, num_blocks, 64) == expected
