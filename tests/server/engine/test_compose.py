"""What "auto" means, and what can't start: composing the engine in this process."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType

from model.errors import CheckpointError
from server.config import EngineConfig
from server.engine import compose as composing
from server.engine.compose import cache_budget, choose_kinds, choose_max_model_len, compose
from server.engine.errors import StartupFailed
from tests.helpers.checkpoints import CONFIG, random_tensors, tiny_gguf, tiny_hf, write_hf

MIB = 2**20


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    """On torch; the native backend has `test_backends`."""
    path = str(tiny_hf(tmp_path / "model"))
    return EngineConfig(model_path=path, kv_cache_bytes=8 * MIB, threads=1, backend="torch")


def load(config: EngineConfig) -> Any:
    return compose(config, lambda what, fraction: None)


def test_auto_on_a_cpu_is_float32_for_weights_and_cache() -> None:
    kinds = choose_kinds(EngineConfig("m", device="cpu", threads=3, backend="torch"))
    assert (kinds.device.type, kinds.dtype, kinds.kv_dtype, kinds.threads) == ("cpu", torch.float32, torch.float32, 3)


def test_the_cache_has_the_computing_type_unless_told_otherwise() -> None:
    assert choose_kinds(EngineConfig("m", device="cpu", dtype="bfloat16", backend="torch")).kv_dtype == torch.bfloat16
    kinds = choose_kinds(EngineConfig("m", device="cpu", dtype="float32", kv_cache_dtype="bfloat16"))
    assert (kinds.dtype, kinds.kv_dtype) == (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(("there", "device"), [(False, "cpu"), (True, "cuda")])
def test_auto_takes_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch, there: bool, device: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert choose_kinds(EngineConfig("m")).device.type == device


def test_a_gpu_computes_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_kinds(EngineConfig("m", device="cuda")).dtype == torch.bfloat16


def test_asking_for_a_gpu_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(StartupFailed, match="--device is cuda, but torch finds no usable CUDA device here"):
        choose_kinds(EngineConfig("m", device="cuda"))


def test_the_models_context_is_the_limit() -> None:
    assert choose_max_model_len(None, 256) == 256
    assert choose_max_model_len(256, 256) == 256
    assert choose_max_model_len(1, 256) == 1
    with pytest.raises(StartupFailed, match="--max-model-len is 257; allowed: 1 to 256, the model's context"):
        choose_max_model_len(257, 256)


def test_the_default_cache_is_a_quarter_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composing, "free_memory", lambda: 1000 * MIB)
    cpu = torch.device("cpu")
    assert cache_budget(None, cpu) == 250 * MIB
    assert cache_budget(1000 * MIB, cpu) == 1000 * MIB
    with pytest.raises(
        StartupFailed, match="--kv-cache-memory is 1001 MiB; allowed: at most the 1000 MiB that are free"
    ):
        cache_budget(1001 * MIB, cpu)


@pytest.mark.parametrize(("large", "early"), [(CONFIG["vocab_size"], 0), (CONFIG["vocab_size"] - 1, 1)])
def test_a_large_vocabulary_is_opened_before_anything_runs(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch, large: int, early: int
) -> None:
    order: list[str] = []
    monkeypatch.setattr(composing, "LARGE_VOCABULARY", large)

    def open_slowly(path: Path) -> None:
        threading.Event().wait(0.1)  # whoever doesn't wait for it is warm before
        order.append("opened")

    monkeypatch.setattr(composing, "open_vocabulary", open_slowly)
    monkeypatch.setattr(composing, "warm_up", lambda *its, **named: order.append("warm"))
    load(config)
    assert order == ["opened"] * early + ["warm"]


def test_the_default_cache_is_no_larger_than_full_contexts_need(config: EngineConfig) -> None:
    engine, ready = load(replace(config, kv_cache_bytes=None, max_num_seqs=2))
    assert ready.cache_tokens == 256 * 2
    assert sum(group.free for group in engine.stats().groups) * 16 == 256 * 2


def test_ready_counts_the_bytes_of_the_cache(config: EngineConfig) -> None:
    engine, ready = load(config)
    groups = engine.stats().groups
    bytes_per_token = 2 * CONFIG["num_hidden_layers"] * CONFIG["num_key_value_heads"] * CONFIG["head_dim"] * 4
    assert [group.block_bytes for group in groups] == [16 * bytes_per_token]
    assert ready.cache_bytes == groups[0].free * groups[0].block_bytes
    assert 7 * MIB < ready.cache_bytes <= 8 * MIB
    assert ready.cache_tokens == groups[0].free * 16


def test_an_int8_cache_holds_almost_four_times_float32_and_twice_bfloat16(config: EngineConfig) -> None:
    config = replace(config, kv_cache_bytes=2 * MIB)
    tokens = {kind: load(replace(config, kv_cache_dtype=kind))[1] for kind in ("float32", "bfloat16", "int8")}
    assert tokens["int8"].kv_cache_dtype == "int8"
    head_dim = CONFIG["head_dim"]
    for kind, size in (("float32", 4), ("bfloat16", 2)):
        ratio = tokens["int8"].cache_tokens / tokens[kind].cache_tokens
        assert abs(ratio - size * head_dim / (head_dim + 4)) < 0.02  # a scale of 4 bytes for each head's head_dim codes


def test_ready_says_how_the_weights_are_quantised(config: EngineConfig, tmp_path: Path) -> None:
    assert load(config)[1].quantization == "none"
    assert load(replace(config, quantize="int4"))[1].quantization == "int4"
    gguf = tiny_gguf(tmp_path / "m.gguf", types={"blk.0.ffn_up.weight": GGMLQuantizationType.Q8_0})
    assert load(replace(config, model_path=str(gguf)))[1].quantization == "F32+Q8_0"


def test_a_quantised_file_is_not_quantised_again(config: EngineConfig, tmp_path: Path) -> None:
    gguf = tiny_gguf(tmp_path / "m.gguf", types={"blk.0.ffn_up.weight": GGMLQuantizationType.Q8_0})
    with pytest.raises(StartupFailed, match=r"^--quantize is int8; allowed: none, as .*m\.gguf: .* already \(Q8_0\)$"):
        load(replace(config, model_path=str(gguf), quantize="int8"))


def test_what_the_cache_can_not_hold_is_no_context(config: EngineConfig) -> None:
    bytes_per_block = 2 * CONFIG["num_hidden_layers"] * CONFIG["num_key_value_heads"] * CONFIG["head_dim"] * 4 * 16
    _, ready = load(replace(config, kv_cache_bytes=17 * bytes_per_block, max_model_len=256))
    assert ready.max_model_len == ready.cache_tokens == 256
    with pytest.raises(StartupFailed, match=r"one sequence of 256 tokens needs .* see --kv-cache-memory"):
        load(replace(config, kv_cache_bytes=16 * bytes_per_block))


def test_a_cache_that_is_smaller_than_the_context_does_not_pass_for_it(tmp_path: Path) -> None:
    """Or else a refusal blames the model where a larger --kv-cache-memory would help."""
    path = tiny_hf(tmp_path / "model", max_position_embeddings=100_000)
    _, ready = load(EngineConfig(model_path=str(path), kv_cache_bytes=8 * MIB, threads=1))
    assert ready.cache_tokens < ready.max_model_len == 100_000


def test_windowed_layers_get_a_group_of_their_own(tmp_path: Path) -> None:
    gemma = CONFIG | {
        "model_type": "gemma3_text",
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 32,
        "rope_local_base_freq": 10000.0,
        "tie_word_embeddings": True,
    }
    path = write_hf(tmp_path / "gemma", random_tensors("gemma3", tied=True), gemma)
    engine, _ = load(EngineConfig(str(path), kv_cache_bytes=8 * MIB, threads=1, max_num_batched_tokens=64))
    assert len(engine.stats().groups) == 2


def test_warming_up_leaves_nothing_behind(config: EngineConfig) -> None:
    engine, _ = load(config)
    stats = engine.stats()
    assert (stats.running, stats.waiting, engine.has_work) == (0, 0, False)
    assert [(group.used, group.cached) for group in stats.groups] == [(0, 0)]


def test_the_first_long_prompt_is_paced(config: EngineConfig) -> None:
    """The pacer has learned what a token costs before the first request comes."""
    engine, _ = load(config)
    assert engine._pacer.per_token_s is not None


@pytest.mark.parametrize("max_model_len", [1, 2, 3])
def test_a_tiny_context_can_be_warmed_up(config: EngineConfig, max_model_len: int) -> None:
    assert load(replace(config, max_model_len=max_model_len))[1].max_model_len == max_model_len


def test_a_model_that_can_not_compute_does_not_start(config: EngineConfig, tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    tensors["model.norm.weight"][3] = float("nan")
    broken = write_hf(tmp_path / "nan", tensors, CONFIG)
    with pytest.raises(StartupFailed, match="the model loads, but can't compute: the model's logits are not finite"):
        load(replace(config, model_path=str(broken)))


def test_the_torch_threads_are_those_that_were_asked_for(config: EngineConfig) -> None:
    before = torch.get_num_threads()
    try:
        _, ready = load(replace(config, threads=2))
        assert (ready.threads, torch.get_num_threads()) == (2, 2)
    finally:
        torch.set_num_threads(before)


def test_loading_reports_fractions_up_to_one(config: EngineConfig) -> None:
    heard: list[tuple[str, float]] = []
    compose(config, lambda what, fraction: heard.append((what, fraction)))
    assert {what for what, _ in heard} == {"weights"}
    assert [fraction for _, fraction in heard] == sorted(fraction for _, fraction in heard)
    assert heard[-1][1] == 1.0


def test_a_missing_tensor_is_named(config: EngineConfig, tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    del tensors["model.norm.weight"]
    broken = write_hf(tmp_path / "broken", tensors, CONFIG)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        load(replace(config, model_path=str(broken)))
