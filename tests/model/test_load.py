"""Checkpoints on disk become decoders: both formats of every family say the same, in every number format."""

from pathlib import Path

import pytest
import torch

from model.checkpoint.source import open_checkpoint
from model.decoder import Decoder
from model.errors import CheckpointError
from model.load import load_model
from tests.helpers.checkpoints import CONFIG, random_tensors, tiny_gguf, tiny_hf, write_hf
from tests.helpers.paged import Paged

TOKENS = [(5 * i * i + 2) % 40 for i in range(30)]
TYPES = {"llama": "llama", "mistral": "mistral", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}


def load(path: Path, dtype: torch.dtype = torch.float64) -> Decoder:
    return load_model(open_checkpoint(path), device=torch.device("cpu"), dtype=dtype)


def logits(path: Path, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return Paged(load(path, dtype)).logits(TOKENS, [13, 1, 16])


@pytest.mark.parametrize("family", TYPES)
def test_a_gguf_and_the_directory_it_was_made_from_say_the_same(family: str, tmp_path: Path) -> None:
    """What conversion does to names, rows and norms is undone; the decoder is the same to the last bit."""
    config = CONFIG | {"model_type": TYPES[family]}
    if family == "gemma3":
        config |= {"sliding_window": 16, "query_pre_attn_scalar": 32, "rope_theta": 10000.0}
    directory = write_hf(tmp_path / "hf", random_tensors(family), config)
    gguf = tiny_gguf(tmp_path / "m.gguf", family)
    torch.testing.assert_close(logits(gguf), logits(directory), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_come_in_the_type_asked_for(dtype: torch.dtype, tmp_path: Path) -> None:
    decoder = load(tiny_hf(tmp_path / "hf"), dtype)
    assert decoder.dtype == dtype
    assert decoder.layers[0].mlp.down.weight.matmul(torch.zeros(1, 96, dtype=dtype)).dtype == dtype


def test_progress_ends_with_everything_read(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    checkpoint = open_checkpoint(tiny_hf(tmp_path / "hf"))
    load_model(
        checkpoint,
        device=torch.device("cpu"),
        dtype=torch.float32,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] > 0


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load(write_hf(tmp_path / "hf", tensors, CONFIG))


def test_rotary_frequencies_stored_beside_the_weights_are_ignored(tmp_path: Path) -> None:
    """Old Llama checkpoints hold them."""
    tensors = random_tensors("llama")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = tensors["model.norm.weight"][:16]
    directory = write_hf(tmp_path / "hf", tensors, CONFIG)
    torch.testing.assert_close(logits(directory), logits(tiny_hf(tmp_path / "plain")), rtol=0, atol=0)
