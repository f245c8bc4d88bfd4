"""Which kernels compute, what is said when it isn't the native ones, and that the engine runs on them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.kernels import native
from model.kernels.native import NativeUnavailable
from model.native_runner import NativeRunner
from model.runner import ModelRunner
from model.sampling_params import SamplingParams
from server.config import EngineConfig
from server.engine import backends
from server.engine.backends import choose_backend
from server.engine.compose import choose_kinds, compose
from server.engine.engine import Engine
from server.engine.errors import StartupFailed
from server.engine.request import Request
from tests.helpers.checkpoints import tiny_gguf, tiny_hf
from tests.helpers.native_teams import native_team

CPU = torch.device("cpu")
MIB = 2**20


@pytest.fixture(autouse=True)
def built() -> None:
    """Skips where the native library was not built."""
    native_team(1)


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    return EngineConfig(model_path=str(tiny_hf(tmp_path / "model")), kv_cache_bytes=8 * MIB, threads=1)


def unavailable(*arguments: Any) -> Any:
    raise NativeUnavailable("_native.so was not built")


def test_auto_is_native_on_a_cpu() -> None:
    backend = choose_backend(EngineConfig("m"), CPU, 1)
    assert (backend.name, backend.kernels, backend.note) == ("native", native_team(1).isa, "")


def test_torch_when_asked_for_says_nothing() -> None:
    backend = choose_backend(EngineConfig("m", backend="torch"), CPU, 1)
    assert (backend.name, backend.kernels, backend.note) == ("torch", "torch", "")


def test_where_there_is_no_library_auto_is_torch_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "proven_team", unavailable)
    backend = choose_backend(EngineConfig("m"), CPU, 1)
    assert (backend.name, backend.note) == ("torch", "no native kernels, torch computes: _native.so was not built")


def test_where_there_is_no_library_native_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "proven_team", unavailable)
    with pytest.raises(StartupFailed, match=r"--backend is native, but _native\.so was not built"):
        choose_backend(EngineConfig("m", backend="native"), CPU, 1)


def test_kernels_that_give_wrong_bits_are_not_used(config: EngineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    if native_team(1).isa == "plain":
        pytest.skip("nothing to fall back from")
    monkeypatch.setattr(native.Team, "differing", "norm")
    backend = choose_backend(EngineConfig("m"), CPU, 1)
    assert backend.kernels == "plain"
    assert backend.note.startswith("kernels that differ from plain C on this machine: ")
    assert backend.note.endswith(" (norm); using plain")
    _, ready = load(config)
    assert (ready.kernels, ready.note) == ("plain", backend.note)  # kvell_backend_info shows both


UNFIT: dict[str, tuple[dict[str, Any], torch.device]] = {
    "--device is cuda": ({"device": "cuda"}, torch.device("cuda")),
    "--dtype is bfloat16": ({"dtype": "bfloat16"}, CPU),
    "--dtype is float64": ({"dtype": "float64"}, CPU),
    "--kv-cache-dtype is float64": ({"kv_cache_dtype": "float64"}, CPU),
}


@pytest.mark.parametrize("reason", UNFIT)
def test_settings_that_native_kernels_can_not_do_mean_torch_or_an_error(reason: str) -> None:
    settings, device = UNFIT[reason]
    backend = choose_backend(EngineConfig("m", **settings), device, 1)
    assert (backend.name, backend.note) == ("torch", "")
    with pytest.raises(StartupFailed, match=f"--backend is native, but {reason}"):
        choose_backend(EngineConfig("m", backend="native", **settings), device, 1)


def test_the_native_cache_is_bfloat16_unless_told_otherwise() -> None:
    kinds = choose_kinds(EngineConfig("m", device="cpu", threads=1))
    assert (kinds.dtype, kinds.kv_dtype) == (torch.float32, torch.bfloat16)
    kinds = choose_kinds(EngineConfig("m", device="cpu", threads=1, kv_cache_dtype="float32"))
    assert kinds.kv_dtype == torch.float32
    kinds = choose_kinds(EngineConfig("m", device="cpu", threads=1, kv_cache_dtype="int8"))
    assert (kinds.backend.name, kinds.kv_dtype) == ("native", torch.int8)


def load(config: EngineConfig) -> Any:
    return compose(config, lambda what, fraction: None)


def test_ready_says_what_computes(config: EngineConfig) -> None:
    engine, ready = load(config)
    assert isinstance(engine._runner, NativeRunner)
    assert (ready.backend, ready.kernels, ready.bit_exact, ready.note) == ("native", native_team(1).isa, True, "")
    assert (ready.dtype, ready.kv_cache_dtype, ready.device, ready.threads) == ("float32", "bfloat16", "cpu", 1)
    engine, ready = load(replace(config, backend="torch"))
    assert isinstance(engine._runner, ModelRunner)
    assert (ready.backend, ready.kernels, ready.bit_exact) == ("torch", "torch", False)


def answer(engine: Engine) -> list[int]:
    prompt = tuple((7 * i * i + 3) % 40 for i in range(30))
    engine.submit([Request("x", prompt, 20, SamplingParams(temperature=0.0))])
    tokens: list[int] = []
    while engine.has_work:
        for event in engine.step().events:
            assert event.error is None
            tokens += event.tokens
    return tokens


@pytest.mark.parametrize("kv_cache_dtype", ["float32", "int8"])
def test_both_backends_give_the_same_answer(config: EngineConfig, kv_cache_dtype: Any) -> None:
    config = replace(config, kv_cache_dtype=kv_cache_dtype)
    answers = [answer(load(replace(config, backend=each))[0]) for each in ("native", "torch")]
    assert len(answers[0]) == 20
    assert answers[0] == answers[1]


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3"])
def test_a_gguf_gives_the_same_answer_too(tmp_path: Path, family: str) -> None:
    path = tiny_gguf(tmp_path / "model.gguf", family)
    config = EngineConfig(
        str(path), kv_cache_bytes=8 * MIB, threads=2, max_num_batched_tokens=64, kv_cache_dtype="float32"
    )
    answers = [answer(load(replace(config, backend=each))[0]) for each in ("native", "torch")]
    assert answers[0] == answers[1]


def test_loading_reports_fractions_up_to_one(config: EngineConfig) -> None:
    heard: list[tuple[str, float]] = []
    compose(config, lambda what, fraction: heard.append((what, fraction)))
    assert {what for what, _ in heard} == {"weights"}
    assert [fraction for _, fraction in heard] == sorted(fraction for _, fraction in heard)
    assert heard[-1][1] == 1.0
