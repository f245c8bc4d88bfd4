"""Weights in memory: every tensor used exactly once or named, in the wanted shape and number format."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type

from model.checkpoint.load import load_weights
from model.checkpoint.source import open_checkpoint
from model.errors import CheckpointError
from tests.helpers.checkpoints import (
    CONFIG,
    converted,
    gguf_metadata,
    random_tensors,
    tiny_gguf,
    tiny_hf,
    write_gguf,
    write_hf,
)

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def shapes(tensors: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in tensors.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", ["gguf", "hf", "shards"])
def test_values_arrive_in_the_wanted_format(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    original = random_tensors("llama")
    path = {
        "gguf": lambda: tiny_gguf(tmp_path / "m.gguf"),
        "hf": lambda: tiny_hf(tmp_path / "m"),
        "shards": lambda: write_hf(tmp_path / "m", original, CONFIG, shards=2),
    }[kind]()
    weights = load_weights(open_checkpoint(path), shapes(original), dtype=dtype)
    assert set(weights) == set(original)
    for name, values in original.items():
        assert weights[name].dtype == dtype
        assert torch.equal(weights[name], torch.from_numpy(values).to(dtype)), name


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q8_0, Type.F16, Type.BF16])
def test_quantised_values_are_those_that_the_checkpoint_reads(tmp_path: Path, kind: Type) -> None:
    original = random_tensors("gemma3")
    names = [f"blk.{layer}.{part}.weight" for layer in range(2) for part in ("attn_q", "ffn_down")] + [
        "token_embd.weight"
    ]
    path = write_gguf(
        tmp_path / "m.gguf",
        "gemma3",
        converted("gemma3", original),
        gguf_metadata("gemma3"),
        types=dict.fromkeys(names, kind),
    )
    checkpoint = open_checkpoint(path)
    weights = load_weights(checkpoint, shapes(original), dtype=torch.float32)
    for name in original:
        np.testing.assert_array_equal(weights[name].numpy(), checkpoint.read(name))


def test_large_matrices_are_decoded_piece_by_piece_without_a_seam(tmp_path: Path) -> None:
    original = random_tensors("llama")
    original[EMBEDDING] = np.random.default_rng(3).standard_normal((4097, 64), np.float32)
    path = write_gguf(
        tmp_path / "m.gguf",
        "llama",
        converted("llama", original),
        gguf_metadata("llama"),
        types={"token_embd.weight": Type.Q8_0},
    )
    checkpoint = open_checkpoint(path)
    weights = load_weights(checkpoint, shapes(original), dtype=torch.float32)
    np.testing.assert_array_equal(weights[EMBEDDING].numpy(), checkpoint.read(EMBEDDING))


def test_loaded_weights_do_not_hang_on_the_file(tmp_path: Path) -> None:
    path = tiny_hf(tmp_path / "m")
    weights = load_weights(open_checkpoint(path), shapes(random_tensors("llama")), dtype=torch.float32)
    file = path / "model.safetensors"
    with file.open("r+b") as opened:
        opened.write(bytes(file.stat().st_size))
    assert torch.equal(weights[HEAD], torch.from_numpy(random_tensors("llama")[HEAD]))


def test_progress_counts_stored_bytes_up_to_the_total(tmp_path: Path) -> None:
    original = random_tensors("llama")
    seen: list[tuple[int, int]] = []
    load_weights(
        open_checkpoint(tiny_hf(tmp_path / "m")),
        shapes(original),
        dtype=torch.bfloat16,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    total = sum(values.nbytes for values in original.values())
    assert {total for _, total in seen} == {total}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (total, total)
    assert len(seen) == len(original)


def check(directory: Path, wanted: dict[str, tuple[int, ...]], *, ignore: tuple[str, ...] = ()) -> None:
    load_weights(open_checkpoint(directory), wanted, ignore=ignore, dtype=torch.float32)


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    wanted = shapes(tensors)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(CheckpointError, match=r"1 tensor missing: model\.layers\.1\.mlp\.up_proj\.weight$"):
        check(write_hf(tmp_path / "m", tensors, CONFIG), wanted)


def test_left_over_tensors_are_named(tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    wanted = shapes(tensors)
    tensors["model.layers.9.extra.weight"] = np.ones(1, np.float32)
    with pytest.raises(CheckpointError, match=r"1 tensor left over: model\.layers\.9\.extra\.weight$"):
        check(write_hf(tmp_path / "m", tensors, CONFIG), wanted)


def test_long_lists_are_shortened_and_both_kinds_said_at_once(tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    wanted = {f"wanted.{i}": (1,) for i in range(20)} | shapes(tensors)
    tensors["odd"] = np.ones(1, np.float32)
    with pytest.raises(CheckpointError) as caught:
        check(write_hf(tmp_path / "m", tensors, CONFIG), wanted)
    assert "20 tensors missing: wanted.0, wanted.1" in str(caught.value)
    assert "and 14 more; 1 tensor left over: odd" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ignored_names_are_left_alone(tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    wanted = shapes(tensors)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    directory = write_hf(tmp_path / "m", tensors, CONFIG)
    check(directory, wanted, ignore=(r"(.*\.)?rotary_emb\.inv_freq",))
    with pytest.raises(CheckpointError, match="rotary_emb"):
        check(directory, wanted, ignore=("rotary_emb",))  # a pattern must match the whole name


def test_a_wrong_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    wanted = shapes(random_tensors("llama")) | {"model.norm.weight": (65,)}
    with pytest.raises(CheckpointError, match=r"'model\.norm\.weight' has shape \[64\], expected \[65\]"):
        check(tiny_hf(tmp_path / "m"), wanted)


def test_a_tied_head_stored_twice_is_accepted_when_equal(tmp_path: Path) -> None:
    tensors = random_tensors("llama", tied=True)
    wanted = shapes(tensors)
    tensors[HEAD] = tensors[EMBEDDING].copy()
    check(write_hf(tmp_path / "m", tensors, CONFIG | {"tie_word_embeddings": True}), wanted)


def test_a_tied_head_that_differs_is_refused_by_name(tmp_path: Path) -> None:
    tensors = random_tensors("llama", tied=True)
    wanted = shapes(tensors)
    tensors[HEAD] = tensors[EMBEDDING].copy()
    tensors[HEAD][-1, -1] += 1
    with pytest.raises(CheckpointError, match=r"tie_word_embeddings.*'lm_head\.weight' differs"):
        check(write_hf(tmp_path / "m", tensors, CONFIG | {"tie_word_embeddings": True}), wanted)


def test_a_weight_in_a_format_we_cannot_read_is_named(tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    tensors[HEAD] = tensors[HEAD].astype(np.int8)
    with pytest.raises(CheckpointError, match=r"'lm_head\.weight' is stored as I8; kvell reads F32"):
        check(write_hf(tmp_path / "m", tensors, CONFIG), shapes(tensors))
