"""A Hugging Face directory gives its tensors, whatever number of files they are in, and what its JSON files say."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from model.checkpoint.source import open_checkpoint
from tests.helpers.checkpoints import CONFIG, random_tensors, tiny_hf, write_hf


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_tensors_come_back_from_one_file_or_several(tmp_path: Path, shards: int) -> None:
    original = random_tensors("llama")
    checkpoint = open_checkpoint(write_hf(tmp_path / "m", original, CONFIG, shards=shards))
    assert set(checkpoint.tensor_names) == set(original)
    for name, values in original.items():
        np.testing.assert_array_equal(checkpoint.read(name), values)
        assert checkpoint.shape(name) == values.shape
        assert checkpoint.stored_bytes(name) == values.nbytes


def test_shards_without_an_index_are_fine_when_complete(tmp_path: Path) -> None:
    directory = write_hf(tmp_path / "m", random_tensors("llama"), CONFIG, shards=3)
    (directory / "model.safetensors.index.json").unlink()
    assert set(open_checkpoint(directory).tensor_names) == set(random_tensors("llama"))


def test_other_copies_of_the_weights_beside_an_index_are_not_read(tmp_path: Path) -> None:
    directory = write_hf(tmp_path / "m", random_tensors("llama"), CONFIG, shards=2)
    (directory / "consolidated.safetensors").write_bytes(b"something else")
    assert len(open_checkpoint(directory).tensor_names) == len(random_tensors("llama"))


def test_symbolic_links_to_weights_are_followed(tmp_path: Path) -> None:
    directory = tiny_hf(tmp_path / "real")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "config.json").write_text((directory / "config.json").read_text())
    (linked / "model.safetensors").symlink_to(directory / "model.safetensors")
    assert open_checkpoint(linked).digest() == open_checkpoint(directory).digest()


def test_bfloat16_reads_as_float32(tmp_path: Path) -> None:
    directory = tiny_hf(tmp_path / "m")
    tensors = {name: torch.from_numpy(value).bfloat16() for name, value in random_tensors("llama").items()}
    save_file(tensors, directory / "model.safetensors")
    checkpoint = open_checkpoint(directory)
    name = "lm_head.weight"
    assert checkpoint.stored(name).type == "BF16"
    np.testing.assert_array_equal(checkpoint.read(name), tensors[name].float().numpy())


@pytest.mark.parametrize(
    ("config_eos", "generation_eos", "expected"),
    [(2, None, {2}), (None, [1, 5], {1, 5}), ([2, 3], 7, {2, 3, 7}), (None, None, set())],
)
def test_end_tokens_are_the_union_of_all_sources(
    tmp_path: Path, config_eos: object, generation_eos: object, expected: set[int]
) -> None:
    directory = tiny_hf(tmp_path / "m", eos_token_id=config_eos)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": generation_eos, "top_k": 3}))
    checkpoint = open_checkpoint(directory)
    assert checkpoint.eos_ids == expected
    assert checkpoint.generation_config["top_k"] == 3


def test_no_generation_config_is_an_empty_one(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_hf(tmp_path / "m"))
    assert checkpoint.generation_config == {}
    assert checkpoint.chat_template is None
    assert checkpoint.tokenizer_metadata == {}


NAMED = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config.json": json.dumps({"chat_template": "C"})}, "C"),
        ({"tokenizer_config.json": json.dumps({"chat_template": NAMED})}, "D"),
        ({"tokenizer_config.json": json.dumps({"chat_template": NAMED[:1]})}, None),
        ({"chat_template.json": json.dumps({"chat_template": "J"})}, "J"),
        ({"chat_template.jinja": "X", "tokenizer_config.json": json.dumps({"chat_template": "C"})}, "X"),
        ({"chat_template.jinja": "X", "chat_template.json": json.dumps({"chat_template": "J"})}, "X"),
    ],
)
def test_the_chat_template_is_found_wherever_it_is(tmp_path: Path, files: dict[str, str], expected: str | None) -> None:
    directory = tiny_hf(tmp_path / "m")
    for name, text in files.items():
        (directory / name).write_text(text)
    assert open_checkpoint(directory).chat_template == expected


def test_tokenizer_files_are_listed_by_name(tmp_path: Path) -> None:
    directory = tiny_hf(tmp_path / "m")
    (directory / "tokenizer.json").write_text("{}")
    (directory / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<a>", "eos_token": "<b>"}))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<c>"}))
    checkpoint = open_checkpoint(directory)
    assert checkpoint.tokenizer_files["tokenizer.json"] == directory / "tokenizer.json"
    assert "tokenizer.model" not in checkpoint.tokenizer_files
    assert checkpoint.tokenizer_config == {"bos_token": "<a>", "eos_token": "<c>"}


def test_digest_sees_config_and_weights(tmp_path: Path) -> None:
    digests = {
        open_checkpoint(tiny_hf(tmp_path / "a")).digest(),
        open_checkpoint(tiny_hf(tmp_path / "b", rope_theta=5000.0)).digest(),
        open_checkpoint(write_hf(tmp_path / "c", random_tensors("llama", seed=1), CONFIG)).digest(),
    }
    assert len(digests) == 3
    assert open_checkpoint(tiny_hf(tmp_path / "d")).digest() in digests


BESIDE_THE_WEIGHTS = {
    "tokenizer.json": "{}",
    "tokenizer.model": "x",
    "tokenizer_config.json": '{"bos_token": "<a>"}',
    "special_tokens_map.json": '{"bos_token": "<a>"}',
    "added_tokens.json": '{"<a>": 1}',
    "generation_config.json": '{"temperature": 0.5}',
    "chat_template.jinja": "{{ messages }}",
}


@pytest.mark.parametrize("name", BESIDE_THE_WEIGHTS)
def test_digest_sees_what_changes_an_answer_beside_the_weights(name: str, tmp_path: Path) -> None:
    directory = tiny_hf(tmp_path / "m")
    digests = {open_checkpoint(directory).digest()}
    for text in (BESIDE_THE_WEIGHTS[name], BESIDE_THE_WEIGHTS[name] + " "):
        (directory / name).write_text(text)
        digests.add(open_checkpoint(directory).digest())
    assert len(digests) == 3 - (name == "generation_config.json"), "which is read as values, so its layout says nothing"
    (directory / name).unlink()
    assert open_checkpoint(directory).digest() in digests
