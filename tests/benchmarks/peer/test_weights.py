"""Bytes that a token needs: all tensors, and the embedding table only where it is the head too."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from safetensors.numpy import save_file

from benchmarks.peer.weights import bytes_per_token


@pytest.mark.parametrize(("tied", "expected"), [(True, 4 * (80 + 24)), (False, 4 * (80 + 24))])
def test_a_gguf(tmp_path: Path, tied: bool, expected: int) -> None:
    tensors = {"token_embd.weight": np.ones((10, 8), np.float32), "blk.0.ffn_up.weight": np.ones((3, 8), np.float32)}
    if not tied:
        tensors["output.weight"] = np.ones((10, 8), np.float32)
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert bytes_per_token(path) == expected


@pytest.mark.parametrize(("head", "expected"), [(False, 2 * 80 + 4 * 24), (True, 2 * 40 + 4 * 24)])
def test_a_folder_of_safetensors_in_several_files(tmp_path: Path, head: bool, expected: int) -> None:
    first = {"model.embed_tokens.weight": np.ones((10, 8), np.float16)}
    second = {"model.layers.0.mlp.up_proj.weight": np.ones((3, 8), np.float32)}
    if head:
        second["lm_head.weight"] = np.ones((5, 8), np.float16)
    save_file(first, tmp_path / "model-1.safetensors", metadata={"format": "pt"})
    save_file(second, tmp_path / "model-2.safetensors")
    assert bytes_per_token(tmp_path) == expected
