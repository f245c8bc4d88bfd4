"""What can't be served is refused when it is opened, with one line that names the file and the reason."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from model.checkpoint.source import open_checkpoint
from model.errors import CheckpointError, UnknownArchitecture, UnsupportedConfig
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


def refusal(path: Path) -> str:
    """The one line that opening this path is refused with."""
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edited(path: Path, change: Callable[[bytearray], object]) -> Path:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file or directory" in refusal(tmp_path / "nothing.gguf")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    assert "neither a file nor a directory" in refusal(tmp_path / "m.gguf")


def test_an_empty_directory(tmp_path: Path) -> None:
    assert "the directory is empty" in refusal(tmp_path)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    assert "the file is empty" in refusal(tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth"])
def test_pickled_weights(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x02}q\x00.")
    assert "pickled weights" in refusal(tmp_path / name)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert f"only pickled weights ({name})" in refusal(tmp_path)


def test_a_weights_file_instead_of_its_directory(tmp_path: Path) -> None:
    assert "name the directory" in refusal(tiny_hf(tmp_path / "m") / "model.safetensors")


# -- GGUF


@pytest.mark.parametrize("data", [b"abc", b"not a gguf at all, but long enough to be read"])
def test_wrong_magic(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    assert "not a GGUF file" in refusal(tmp_path / "m.gguf")


@pytest.mark.parametrize("version", [1, 2, 4])
def test_other_versions(tmp_path: Path, version: int) -> None:
    path = edited(tiny_gguf(tmp_path / "m.gguf"), lambda data: struct.pack_into("<I", data, 4, version))
    assert f"GGUF version {version} is not supported; kvell reads version 3" in refusal(path)


def test_big_endian(tmp_path: Path) -> None:
    path = edited(tiny_gguf(tmp_path / "m.gguf"), lambda data: struct.pack_into(">I", data, 4, 3))
    assert "GGUF big-endian is not supported" in refusal(path)


def test_truncated_tensor_data(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-64])
    assert "truncated: tensor 'blk.1" in refusal(path)


def test_truncated_header(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:200])
    assert "the header runs past the end" in refusal(path)


@pytest.mark.parametrize("field", [8, 16])
def test_absurd_counts_cost_nothing(tmp_path: Path, field: int) -> None:
    path = edited(tiny_gguf(tmp_path / "m.gguf"), lambda data: struct.pack_into("<Q", data, field, 2**63))
    assert "corrupt" in refusal(path)


def test_an_absurd_list(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", extra={"some.list": ["a", "b"]})
    at = path.read_bytes().index(b"some.list") + len("some.list") + 8  # past the value's type and the items' type
    edited(path, lambda data: struct.pack_into("<Q", data, at, 2**40))
    assert "a list of 1099511627776 does not fit" in refusal(path)


def test_an_absurd_number_of_layers(tmp_path: Path) -> None:
    tensors = converted("gemma3", random_tensors("gemma3"))
    path = write_gguf(tmp_path / "m.gguf", "gemma3", tensors, gguf_metadata("gemma3") | {"block_count": 2**31})
    assert "2147483648 layers stated, but only 29 tensors stored" in refusal(path)


def test_unknown_architecture(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "mamba", {"x": np.ones(32, np.float32)}, {})
    with pytest.raises(UnknownArchitecture, match="'mamba'; kvell serves llama, mistral"):
        open_checkpoint(path)


def test_unsupported_storage_types_are_named_with_what_is_read(tmp_path: Path) -> None:
    tensors = converted("llama", random_tensors("llama"))
    tensors["blk.0.ffn_up.weight"] = np.zeros((4, 66), np.uint8)  # IQ2_XXS: 66 bytes for 256 values
    path = write_gguf(
        tmp_path / "m.gguf", "llama", tensors, gguf_metadata("llama"), raw={"blk.0.ffn_up.weight": Type.IQ2_XXS}
    )
    line = refusal(path)
    assert "'blk.0.ffn_up.weight' is stored as IQ2_XXS" in line
    assert "Q4_K" in line


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"expert_count": 8}, "mixture-of-experts"),
        ({"attention.value_length": 16}, "keys and values of different sizes"),
        ({"rope.dimension_count": 16}, "heads rotate whole"),
        ({"rope.scaling.type": "longrope"}, "rope.scaling.type 'longrope' is not supported"),
        ({"rope.scaling.type": "yarn", "rope.scaling.attn_factor": 1.5}, "rope.scaling.attn_factor = 1.5"),
        ({"attention.head_count": 0}, "must be positive integers"),
        ({"attention.head_count_kv": 3}, "num_key_value_heads = 3"),
        ({"block_count": "two"}, "num_hidden_layers = 'two'"),
    ],
)
def test_settings_that_the_decoder_does_not_have(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    tensors = converted("llama", random_tensors("llama"))
    path = write_gguf(tmp_path / "m.gguf", "llama", tensors, gguf_metadata("llama") | changes)
    assert line in refusal(path)


def test_one_part_of_a_split_file(tmp_path: Path) -> None:
    assert "one of 3 parts of a split GGUF" in refusal(tiny_gguf(tmp_path / "m.gguf", extra={"split.count": 3}))


def test_no_embedding(tmp_path: Path) -> None:
    tensors = converted("llama", random_tensors("llama"))
    del tensors["token_embd.weight"]
    path = write_gguf(tmp_path / "m.gguf", "llama", tensors, gguf_metadata("llama"))
    assert "'token_embd.weight' is missing" in refusal(path)


def test_overlapping_tensors(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    data = path.read_bytes()
    name = b"blk.1.ffn_up.weight"
    at = data.index(name) + len(name) + 4 + 2 * 8 + 4  # past the number of dimensions, two of them, and the type
    edited(path, lambda data: struct.pack_into("<Q", data, at, 32))
    assert "overlaps another" in refusal(path)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf"), -1.0])
def test_impossible_rope_divisors(tmp_path: Path, value: float) -> None:
    tensors = converted("llama", random_tensors("llama")) | {"rope_freqs.weight": np.full(16, value, np.float32)}
    path = write_gguf(tmp_path / "m.gguf", "llama", tensors, gguf_metadata("llama"))
    assert "can't divide a frequency" in refusal(path)


# -- Hugging Face


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected a JSON object, found list"),
        ("\udcff", "not UTF-8"),
        ("[" * 100_000, "not valid JSON"),
        ("{}", "model_type is missing"),
    ],
)
def test_a_malformed_config(tmp_path: Path, text: str, line: str) -> None:
    directory = tiny_hf(tmp_path / "m")
    (directory / "config.json").write_text(text, errors="surrogateescape")
    assert line in refusal(directory)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", -64),
        ("num_attention_heads", 0),
        ("num_key_value_heads", 3),
        ("head_dim", 31),
        ("num_hidden_layers", "2"),
        ("vocab_size", 1.5),
        ("rms_norm_eps", 0),
        ("rope_theta", -1),
        ("max_position_embeddings", None),
        ("tie_word_embeddings", "yes"),
    ],
)
def test_impossible_values_are_named(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(UnsupportedConfig, match=key):
        open_checkpoint(tiny_hf(tmp_path / "m", **{key: value}))


def test_an_unknown_architecture_in_a_config(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitecture, match="'gpt_oss'"):
        open_checkpoint(tiny_hf(tmp_path / "m", model_type="gpt_oss"))


def test_no_config(tmp_path: Path) -> None:
    (tmp_path / "readme.md").touch()
    assert "no config.json" in refusal(tmp_path)


def test_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert "no *.safetensors files" in refusal(tmp_path)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_truncated_weights(tmp_path: Path, length: int) -> None:
    file = tiny_hf(tmp_path / "m") / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    line = refusal(tmp_path / "m")
    assert str(file) in line
    assert "truncated" in line or "empty" in line


def test_an_index_that_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    directory = write_hf(tmp_path / "m", random_tensors("llama"), CONFIG, shards=2)
    (directory / "model-00002-of-00002.safetensors").unlink()
    assert "names model-00002-of-00002.safetensors, which does not exist" in refusal(directory)


def test_an_incomplete_set_of_shards_without_an_index(tmp_path: Path) -> None:
    directory = write_hf(tmp_path / "m", random_tensors("llama"), CONFIG, shards=3)
    (directory / "model.safetensors.index.json").unlink()
    (directory / "model-00002-of-00003.safetensors").unlink()
    assert "no model.safetensors.index.json" in refusal(directory)


@pytest.mark.parametrize(
    ("weight_map", "line"),
    [
        (None, "no weight_map"),
        ({}, "no weight_map"),
        ({"a": 5}, "no weight_map"),
        ({"a": "../../secret.safetensors"}, "is not the name of a safetensors file beside it"),
        ({"a": "pytorch_model.bin"}, "is not the name of a safetensors file beside it"),
        ({"a": "model-00001-of-00002.safetensors"}, "tensor 'a' is not in model-00001-of-00002.safetensors"),
    ],
)
def test_an_index_that_makes_no_sense(tmp_path: Path, weight_map: object, line: str) -> None:
    directory = write_hf(tmp_path / "m", random_tensors("llama"), CONFIG, shards=2)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert line in refusal(directory)


def test_a_tensor_that_is_in_two_files(tmp_path: Path) -> None:
    directory = write_hf(tmp_path / "m", random_tensors("llama"), CONFIG, shards=2)
    (directory / "model.safetensors.index.json").unlink()
    first, second = sorted(directory.glob("*.safetensors"))
    second.write_bytes(first.read_bytes())
    assert "is in model-00001-of-00002.safetensors too" in refusal(directory)


@pytest.mark.parametrize("value", ["two", [1, "x"], True, 1.5])
def test_an_end_token_that_is_no_id(tmp_path: Path, value: object) -> None:
    assert "neither an id nor a list of ids" in refusal(tiny_hf(tmp_path / "m", eos_token_id=value))


def test_a_chat_template_that_is_no_text(tmp_path: Path) -> None:
    directory = tiny_hf(tmp_path / "m")
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": 7}))
    assert "chat_template is neither text nor a list" in refusal(directory)


@pytest.mark.parametrize("name", ["chat_template.jinja", "config.json", "generation_config.json"])
def test_text_that_is_not_utf8_names_the_file(tmp_path: Path, name: str) -> None:
    directory = tiny_hf(tmp_path / "m")
    (directory / name).write_bytes(b"{}\xff")
    assert f"{name}: not UTF-8 (byte 2)" in refusal(directory)


def test_control_characters_in_a_name_are_spelled_out(tmp_path: Path) -> None:
    tensors = random_tensors("llama") | {"a\x1b[2J\nb": np.ones(3, np.int8)}
    checkpoint = open_checkpoint(write_hf(tmp_path / "m", tensors, CONFIG))
    with pytest.raises(CheckpointError) as caught:
        checkpoint.stored("a\x1b[2J\nb")
    assert r"a\x1b[2J\nb" in str(caught.value)
