"""Rounding while loading: how far values move, what is left alone, and that both backends get the very same codes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from model.checkpoint.source import open_checkpoint
from model.checkpoint.stored import Stored, decode
from model.decoder import Decoder
from model.errors import CheckpointError
from model.load import load_model
from model.native_load import load_native_model
from model.quant.rounding import Bits, plan_rounding, quantization_of, round_matrix
from tests.helpers.checkpoints import CONFIG, random_tensors, tiny_gguf, tiny_hf, write_hf
from tests.helpers.native_teams import native_team

Type = GGMLQuantizationType


def matrix(rows: int = 40, columns: int = 96, *, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((rows, columns)) * 0.05
    return values.astype(np.float32)


def stored(values: np.ndarray, kind: str = "F32") -> Stored:
    if kind == "BF16":
        data = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint8).numpy()
    else:
        data = values.astype({"F32": np.float32, "F16": np.float16, "F64": np.float64}[kind]).view(np.uint8)
    return Stored(kind, values.shape, data)


def rounded(values: np.ndarray, kind: str) -> np.ndarray:
    return decode(round_matrix(stored(values), kind))


def squared(difference: np.ndarray) -> np.ndarray:
    """Per group of 32."""
    return np.square(difference, dtype=np.float64).reshape(-1, 32).sum(1)


def test_8_bits_move_no_value_by_more_than_half_a_step() -> None:
    values = matrix()
    steps = np.abs(values).reshape(-1, 32).max(1, keepdims=True) / 127
    moved = np.abs(rounded(values, "Q8_0") - values).reshape(-1, 32)
    assert (moved <= 0.51 * steps).all()
    assert (moved > 0.45 * steps).any()


def test_the_search_for_4_bits_is_worth_its_time() -> None:
    """Against the range of the group cut in fifteen steps: a twelfth less error in all, and hardly a group loses."""
    values = matrix(400, 320)
    plain = squared(decode(Stored("Q4_1", values.shape, quantize(values, Type.Q4_1))) - values)
    mine = squared(rounded(values, "Q4_1") - values)
    assert np.sqrt(mine.sum() / plain.sum()) < 0.92
    assert (mine > 1.02 * plain).mean() < 0.01


def test_every_code_is_the_nearest_by_the_scale_that_is_kept() -> None:
    """Not by the one before it was rounded to a half: small values beside a large offset would show it."""
    values = matrix(40, 96) * 0.001 + np.float32(0.3)
    blocks = round_matrix(stored(values), "Q4_1").data.reshape(-1, 20)
    scale, offset = blocks[:, :4].copy().view("<f2").astype(np.float64).T[:, :, None]
    codes = np.arange(16) * scale + offset
    best = np.abs(values.reshape(-1, 32)[:, :, None] - codes[:, None, :]).min(-1)
    moved = np.abs(rounded(values, "Q4_1") - values).reshape(-1, 32)
    assert (moved <= best + 1e-7).all()


def test_values_that_lie_on_a_grid_of_16_come_back_as_they_were() -> None:
    random = np.random.default_rng(1)
    codes = random.integers(0, 16, (50, 32))
    codes[:, :2] = 0, 15
    scale = random.uniform(0.01, 0.1, (50, 1)).astype(np.float16).astype(np.float32)
    offset = random.uniform(-0.7, -0.1, (50, 1)).astype(np.float16).astype(np.float32)
    values = scale * codes.astype(np.float32) + offset
    np.testing.assert_allclose(rounded(values, "Q4_1"), values, rtol=0, atol=1e-7)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_groups_of_one_value_and_of_zeros_are_exact_and_tiny_ones_finite(kind: str) -> None:
    values = matrix(4, 64)
    values[0], values[1], values[2] = 0.0, 0.25, matrix(1, 64) * 1e-12
    result = rounded(values, kind)
    assert not result[0].any()
    np.testing.assert_allclose(result[1], 0.25, rtol=1e-3)
    assert np.abs(result[2]).max() < 1e-6
    assert np.isfinite(result).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
@pytest.mark.parametrize("fault", [np.nan, np.inf, -np.inf, 1e30])
def test_what_is_no_number_or_too_large_is_seen_in_its_group_and_nowhere_else(kind: str, fault: float) -> None:
    values = matrix(3, 64)
    sound = rounded(values, kind)
    values[1, 40] = fault
    result = rounded(values, kind)
    assert not np.isfinite(result[1, 32:]).all()
    result[1, 32:] = sound[1, 32:]
    np.testing.assert_array_equal(result, sound)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_threads_and_slabs_change_no_code(kind: str) -> None:
    values = matrix(700, 512)
    together = round_matrix(stored(values), kind, threads=3).data
    apart = [round_matrix(stored(values[first : first + 7]), kind).data for first in range(0, 700, 7)]
    np.testing.assert_array_equal(together, np.concatenate(apart))


@pytest.mark.parametrize("source", ["F16", "BF16", "F64"])
def test_every_float_type_can_be_rounded(source: str) -> None:
    kept = stored(matrix(), source)
    same = decode(kept).astype(np.float32)
    np.testing.assert_array_equal(round_matrix(kept, "Q4_1").data, round_matrix(stored(same), "Q4_1").data)


@pytest.mark.parametrize("tied", [False, True])
def test_4_bits_leave_8_to_the_ends_and_to_what_suffers_most(tmp_path: Path, tied: bool) -> None:
    config = CONFIG | {"tie_word_embeddings": tied}
    checkpoint = open_checkpoint(write_hf(tmp_path / "m", random_tensors("llama", tied=tied), config))
    kinds = plan_rounding(checkpoint, "int4", threads=1).kinds
    wider = {"model.embed_tokens.weight"} | (set() if tied else {"lm_head.weight"})
    parts = "self_attn.v_proj", "mlp.down_proj"
    wider |= {f"model.layers.{layer}.{part}.weight" for layer in (0, 1) for part in parts}
    assert {name for name, kind in kinds.items() if kind == "Q8_0"} == wider
    assert set(kinds.values()) == {"Q8_0", "Q4_1"}
    assert len(kinds) == (1 if tied else 2) + 7 * 2
    assert set(plan_rounding(checkpoint, "int8", threads=1).kinds.values()) == {"Q8_0"}


def test_rows_that_groups_do_not_divide_stay_as_they_are(tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    for name in [name for name in tensors if "mlp" in name]:
        tensors[name] = np.ascontiguousarray(tensors[name][:, :90] if "down" in name else tensors[name][:90])
    checkpoint = open_checkpoint(write_hf(tmp_path / "m", tensors, CONFIG | {"intermediate_size": 90}))
    plan = plan_rounding(checkpoint, "int4", threads=1)
    assert not [name for name in plan.kinds if "down" in name]
    assert plan.stored("model.layers.0.mlp.down_proj.weight").type == "F32"
    assert plan.stored("model.layers.0.mlp.up_proj.weight").type == "Q4_1"


def test_what_is_quantised_already_is_not_rounded_again(tmp_path: Path) -> None:
    types = {"blk.0.ffn_up.weight": Type.Q8_0, "blk.1.attn_q.weight": Type.Q4_0}
    path = tiny_gguf(tmp_path / "m.gguf", types=types)
    with pytest.raises(CheckpointError, match=r"m\.gguf: its weights are quantised already \(Q4_0, Q8_0\)"):
        plan_rounding(open_checkpoint(path), "int8", threads=1)


def test_the_types_of_a_file_are_named_by_size(tmp_path: Path) -> None:
    assert quantization_of(open_checkpoint(tiny_hf(tmp_path / "hf"))) == "none"
    assert quantization_of(open_checkpoint(tiny_gguf(tmp_path / "f.gguf"))) == "none"
    types = {f"blk.{layer}.ffn_{part}.weight": Type.Q8_0 for layer in (0, 1) for part in ("up", "gate", "down")}
    mixed = tiny_gguf(tmp_path / "m.gguf", types=types | {"token_embd.weight": Type.Q4_1})
    assert quantization_of(open_checkpoint(mixed)) == "F32+Q8_0+Q4_1"


def matrices_of(decoder: Decoder) -> list[torch.Tensor]:
    layers = [(each.attention.qkv, each.attention.out, each.mlp.gate_up, each.mlp.down) for each in decoder.layers]
    weights = [decoder.embedding, decoder.head, *(linear.weight for layer in layers for linear in layer)]
    return [weight.take(torch.arange(weight.shape[0])) for weight in weights]


@pytest.mark.parametrize("bits", ["int8", "int4"])
@pytest.mark.parametrize("format", ["hf", "gguf"])
def test_torch_multiplies_with_the_very_codes_that_native_kernels_have(tmp_path: Path, bits: Bits, format: str) -> None:
    path = tiny_hf(tmp_path / "m") if format == "hf" else tiny_gguf(tmp_path / "m.gguf")
    checkpoint = open_checkpoint(path)
    read = plan_rounding(checkpoint, bits, threads=2).stored
    native = matrices_of(load_native_model(checkpoint, native_team(), read=read))
    torchs = matrices_of(load_model(checkpoint, device=torch.device("cpu"), dtype=torch.float32, read=read))
    whole = matrices_of(load_model(checkpoint, device=torch.device("cpu"), dtype=torch.float32))
    for packed, dense, exact in zip(native, torchs, whole, strict=True):
        torch.testing.assert_close(packed, dense, rtol=1e-6, atol=1e-6)
        assert 0.002 < float((dense - exact).norm() / exact.norm()) < (0.01 if bits == "int8" else 0.08)
