"""A GGUF gives back the model that went into it: names, values, config, vocabulary."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader
from gguf.quants import dequantize, quantize

from model.checkpoint.gguf import GGUFCheckpoint
from model.checkpoint.source import open_checkpoint
from model.checkpoint.stored import decode
from model.families.registry import to_model_config, weight_shapes
from tests.helpers.checkpoints import (
    HEAD,
    HEADS,
    KV_HEADS,
    converted,
    gguf_metadata,
    random_tensors,
    tiny_gguf,
    tiny_hf,
    write_gguf,
)

FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma3"]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_conversion_is_undone(tmp_path: Path, family: str, tied: bool) -> None:
    original = random_tensors(family, tied=tied)
    checkpoint = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", family, tied=tied))
    assert set(checkpoint.tensor_names) == set(original)
    for name, values in original.items():
        np.testing.assert_allclose(checkpoint.read(name), values, rtol=0, atol=3e-7, err_msg=name)
        assert checkpoint.shape(name) == values.shape
        assert checkpoint.stored_bytes(name) == values.nbytes
    assert checkpoint.config["tie_word_embeddings"] is tied


@pytest.mark.parametrize("family", FAMILIES)
def test_config_reads_as_the_family_expects(tmp_path: Path, family: str) -> None:
    config = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", family)).config
    read = to_model_config(config)
    assert (read.num_heads, read.num_kv_heads, read.head_dim) == (HEADS, KV_HEADS, HEAD)
    assert (read.num_layers, read.hidden_size, read.intermediate_size, read.vocab_size) == (2, 64, 96, 40)
    assert read.norm_eps == 1e-5  # float32 in the file; not 9.999999747378752e-06
    assert set(weight_shapes(read)) == set(random_tensors(family))


def test_a_packed_matrix_has_its_rows_in_order(tmp_path: Path) -> None:
    original = random_tensors("llama")
    name, stored_as = "model.layers.1.self_attn.k_proj.weight", "blk.1.attn_k.weight"
    path = write_gguf(
        tmp_path / "m.gguf", "llama", converted("llama", original), gguf_metadata("llama"), types={stored_as: Type.Q8_0}
    )
    stored = open_checkpoint(path).stored(name)
    assert stored.type == "Q8_0"
    assert stored.shape == original[name].shape
    np.testing.assert_array_equal(stored.data, quantize(original[name], Type.Q8_0))
    np.testing.assert_array_equal(decode(stored), dequantize(stored.data, Type.Q8_0))


def test_llama_biases_are_permuted_with_their_rows(tmp_path: Path) -> None:
    original = random_tensors("llama")
    name = "model.layers.0.self_attn.q_proj"
    original[f"{name}.bias"] = original[f"{name}.weight"][:, 0].copy()
    path = write_gguf(tmp_path / "m.gguf", "llama", converted("llama", original), gguf_metadata("llama"))
    checkpoint = open_checkpoint(path)
    np.testing.assert_array_equal(checkpoint.read(f"{name}.bias"), checkpoint.read(f"{name}.weight")[:, 0])
    assert checkpoint.config["attention_bias"] is True


@pytest.mark.parametrize("kind", [Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0])
def test_each_type_is_read_from_a_file(tmp_path: Path, kind: Type) -> None:
    tensors = converted("qwen3", random_tensors("qwen3"))
    path = write_gguf(
        tmp_path / "m.gguf", "qwen3", tensors, gguf_metadata("qwen3"), types={"blk.0.ffn_up.weight": kind}
    )
    checkpoint = open_checkpoint(path)
    name = "model.layers.0.mlp.up_proj.weight"
    assert checkpoint.stored(name).type == kind.name
    np.testing.assert_array_equal(
        checkpoint.read(name), dequantize(quantize(tensors["blk.0.ffn_up.weight"], kind), kind)
    )


def test_the_gguf_packages_own_reader_sees_the_same(tmp_path: Path) -> None:
    path = tiny_gguf(
        tmp_path / "m.gguf", "llama", extra={"tokenizer.ggml.tokens": ["a", "ü", ""], "some.list": [1, 2, 3]}
    )
    theirs = GGUFReader(path)
    ours = GGUFCheckpoint(path)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            value = field.contents()
            assert ours.metadata[key] == (pytest.approx(value) if isinstance(value, float) else value), key
    assert len(ours.metadata) == len(theirs.fields) - 3
    assert len(ours.tensor_names) == len(theirs.tensors)


VOCABULARY = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["<|endoftext|>", "<|im_end|>", "hello", "<|end|>"],
    "tokenizer.ggml.token_type": [3, 3, 1, 1],
    "tokenizer.ggml.scores": [0.0, 0.5, 0.25, 1.0],
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.chat_template": "{{ messages }}",
    "general.sampling.temp": 0.6,
}


def test_vocabulary_template_and_sampling_settings(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", extra=VOCABULARY))
    metadata = checkpoint.tokenizer_metadata
    for key, value in VOCABULARY.items():
        assert key == "general.sampling.temp" or metadata[key] == value
    assert set(metadata) == {key for key in VOCABULARY if key.startswith("tokenizer.")}
    assert "general.architecture" not in metadata
    assert checkpoint.chat_template == "{{ messages }}"
    assert checkpoint.generation_config == {"temperature": 0.6, "eos_token_id": [2]}
    assert checkpoint.config["bos_token_id"] == 0
    assert checkpoint.tokenizer_files == {}


def test_special_tokens_that_end_a_turn_end_an_answer(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", extra=VOCABULARY))
    assert checkpoint.eos_ids == {0, 1, 2}  # by name, by name, by eos_token_id; <|end|> is an ordinary token here


def test_without_a_vocabulary_nothing_is_made_up(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_gguf(tmp_path / "m.gguf"))
    assert checkpoint.eos_ids == frozenset()
    assert checkpoint.generation_config == {}
    assert checkpoint.chat_template is None
    assert dict(checkpoint.tokenizer_metadata) == {}


def test_opening_does_not_decode_the_vocabulary(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", extra=VOCABULARY)
    checkpoint = GGUFCheckpoint(path)
    open_checkpoint(path)
    assert "tokenizer.ggml.tokens" not in checkpoint.metadata._decoded


NO_TORCH = """
import subprocess
import sys
from pathlib import Path
from model.checkpoint.source import open_checkpoint
for path in sys.argv[1:]:
    checkpoint = open_checkpoint(Path(path))
    checkpoint.read(checkpoint.tensor_names[0])
print(sorted({"torch", "transformers"} & set(sys.modules)))
"""


def test_metadata_is_read_without_torch(tmp_path: Path) -> None:
    paths = [str(tiny_gguf(tmp_path / "m.gguf")), str(tiny_hf(tmp_path / "m"))]
    run = subprocess.run([sys.executable, "-c", NO_TORCH, *paths], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_rope_divisors_come_from_the_tensor(tmp_path: Path) -> None:
    tensors = converted("llama", random_tensors("llama"))
    tensors["rope_freqs.weight"] = np.linspace(1, 8, HEAD // 2, dtype=np.float32)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", "llama", tensors, gguf_metadata("llama")))
    assert "rope_freqs.weight" not in checkpoint.tensor_names
    read = to_model_config(checkpoint.config).rope
    np.testing.assert_allclose(read.divisors, np.linspace(1, 8, HEAD // 2), rtol=1e-6)


@pytest.mark.parametrize(
    ("family", "extra", "expected"),
    [
        ("llama", {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, ("linear", {"factor": 4.0})),
        (
            "qwen2",
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0, "rope.scaling.original_context_length": 128},
            ("yarn", {"factor": 2.0, "original_max_position_embeddings": 128.0}),
        ),
        ("llama", {"rope.scaling.type": "none"}, ("none", {})),
    ],
)
def test_rope_scaling(tmp_path: Path, family: str, extra: dict[str, object], expected: tuple[str, object]) -> None:
    tensors = converted(family, random_tensors(family))
    path = write_gguf(tmp_path / "m.gguf", family, tensors, gguf_metadata(family) | extra)
    rope = to_model_config(open_checkpoint(path).config).rope
    assert (rope.scaling, rope.params) == expected


def test_gemma_gets_what_llama_cpp_has_in_its_code(tmp_path: Path) -> None:
    read = to_model_config(open_checkpoint(tiny_gguf(tmp_path / "m.gguf", "gemma3")).config)
    assert read.windows == (16, 16)
    assert read.query_scale == HEAD**-0.5
    assert read.local_rope is not None
    assert (read.rope.base, read.local_rope.base) == (10000.0, 10000.0)
    assert read.norm_offset == 1.0


def test_gemma_takes_a_layer_pattern_that_the_file_states(tmp_path: Path) -> None:
    tensors = converted("gemma3", random_tensors("gemma3"))
    metadata = gguf_metadata("gemma3") | {
        "attention.sliding_window_pattern": [False, True],
        "rope.freq_base_swa": 500.0,
    }
    read = to_model_config(open_checkpoint(write_gguf(tmp_path / "m.gguf", "gemma3", tensors, metadata)).config)
    assert read.windows == (None, 16)
    assert read.local_rope is not None
    assert read.local_rope.base == 500.0


def test_a_llama_with_a_window_is_a_mistral(tmp_path: Path) -> None:
    tensors = converted("llama", random_tensors("llama"))
    metadata = gguf_metadata("llama") | {"attention.sliding_window": 32}
    read = to_model_config(open_checkpoint(write_gguf(tmp_path / "m.gguf", "llama", tensors, metadata)).config)
    assert read.family == "mistral"
    assert read.windows == (32, 32)


def test_names_that_the_family_does_not_know_stay_visible(tmp_path: Path) -> None:
    tensors = converted("llama", random_tensors("llama")) | {"blk.0.strange.weight": np.ones(3, np.float32)}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", "llama", tensors, gguf_metadata("llama")))
    assert "blk.0.strange.weight" in checkpoint.tensor_names


def test_digest_tells_models_apart_and_survives_copying(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "a.gguf")
    digest = open_checkpoint(path).digest()
    copy = tmp_path / "b.gguf"
    copy.write_bytes(path.read_bytes())
    assert open_checkpoint(copy).digest() == digest
    for name, value in (("weights", random_tensors("llama", seed=1)), ("bias", random_tensors("qwen2"))):
        other = write_gguf(tmp_path / f"{name}.gguf", "llama", converted("llama", value), gguf_metadata("llama"))
        assert open_checkpoint(other).digest() != digest
