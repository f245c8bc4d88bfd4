"""Broken bytes give a CheckpointError or a model, never another exception and never gigabytes."""

import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.checkpoint.match import check_names
from model.checkpoint.source import open_checkpoint
from model.errors import CheckpointError
from model.families.registry import to_model_config, weight_shapes
from tests.helpers.checkpoints import tiny_gguf, tiny_hf

LIMIT = 4 << 30
EXTRA = {
    "tokenizer.ggml.tokens": ["<|endoftext|>", "b", "ü"],
    "tokenizer.ggml.token_type": [3, 1, 1],
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.chat_template": "{{ messages }}",
}


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """An absurd allocation fails at once instead of filling the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + LIMIT, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def opens(path: Path) -> bool:
    """Whether it opens; then all of it is read too. Anything but a CheckpointError fails the test."""
    try:
        _read_all(path)
    except CheckpointError as error:
        line = str(error)
    else:
        return True
    assert line.isprintable()
    return False


def _read_all(path: Path) -> None:
    checkpoint = open_checkpoint(path)
    dict(checkpoint.tokenizer_metadata)
    assert isinstance(checkpoint.eos_ids, frozenset)
    assert checkpoint.chat_template is None or isinstance(checkpoint.chat_template, str)
    checkpoint.digest()
    check_names(checkpoint, weight_shapes(to_model_config(checkpoint.config)))
    for name in checkpoint.tensor_names:
        assert checkpoint.read(name).shape == checkpoint.shape(name)


def damaged(data: bytes, header: int, *, seed: int, count: int) -> Iterator[bytes]:
    """Copies with one or a few bytes of the header changed: single bits, and whole fields of ones or zeros."""
    rng = random.Random(seed)
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 3))):
            at = rng.randrange(header)
            width = rng.choice((1, 1, 4, 8))
            value = rng.choice((copy[at] ^ 1 << rng.randrange(8), 0, 255, rng.randrange(256)))
            copy[at : at + width] = bytes([value]) * width
        yield bytes(copy)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_gguf_cut_anywhere_is_refused(tmp_path: Path, family: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", family, extra=EXTRA)
    data = path.read_bytes()
    assert opens(path)
    for length in [*range(0, 5000, 64), *range(1, 400, 7), *range(5000, len(data), 8192), len(data) - 33]:
        path.write_bytes(data[:length])
        assert not opens(path), length


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_gguf_with_damaged_header_is_refused_or_read(tmp_path: Path, family: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", family, extra=EXTRA)
    data = path.read_bytes()
    header = data.index(b"blk.1.ffn_down.weight")  # most of the header
    refused = 0
    for copy in damaged(data, header, seed=11, count=400):
        path.write_bytes(copy)
        refused += not opens(path)
    assert refused > 200


def test_a_safetensors_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    directory = tiny_hf(tmp_path / "m")
    path = directory / "model.safetensors"
    data = path.read_bytes()
    assert opens(directory)
    for length in [*range(0, 4000, 64), *range(4000, len(data), 16384), len(data) - 1]:
        path.write_bytes(data[:length])
        assert not opens(directory), length


def test_a_safetensors_file_with_damaged_header_is_refused_or_read(tmp_path: Path) -> None:
    directory = tiny_hf(tmp_path / "m")
    path = directory / "model.safetensors"
    data = path.read_bytes()
    refused = 0
    for copy in damaged(data, 8 + int.from_bytes(data[:8], "little"), seed=12, count=300):
        path.write_bytes(copy)
        refused += not opens(directory)
    assert refused > 200


def test_a_damaged_config_is_refused_or_read(tmp_path: Path) -> None:
    directory = tiny_hf(tmp_path / "m")
    path = directory / "config.json"
    data = path.read_bytes()
    refused = 0
    for copy in damaged(data, len(data), seed=13, count=300):
        path.write_bytes(copy)
        refused += not opens(directory)
    assert refused > 100
