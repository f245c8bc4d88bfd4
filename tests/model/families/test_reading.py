"""config.json -> ModelConfig: published configs, transformers 4's and 5's spellings, and refusals by name."""

from typing import Any

import pytest

from model.config import ModelConfig, RopeConfig
from model.errors import CheckpointError, UnknownArchitecture, UnsupportedConfig
from model.families.registry import family_of, family_of_gguf, to_model_config

SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "max_position_embeddings": 2048,
}
LLAMA = {"model_type": "llama", **SIZES}
GEMMA = {"model_type": "gemma3_text", **SIZES, "num_hidden_layers": 7}
MODEL_TYPES = ["llama", "mistral", "qwen2", "qwen3", "gemma3_text"]


def read(config: dict[str, Any], **changes: Any) -> ModelConfig:
    return to_model_config(config | changes)


def test_what_a_short_config_leaves_out_is_what_the_original_assumes() -> None:
    config = read(LLAMA)
    assert (config.num_kv_heads, config.head_dim, config.norm_eps) == (8, 8, 1e-6)
    assert (config.tie_embeddings, config.activation, config.qkv_bias, config.windows) == (False, "silu", False, ())
    assert config.rope == RopeConfig(10000.0)


def test_null_is_the_same_as_absent() -> None:
    nothing = dict.fromkeys(["head_dim", "num_key_value_heads", "rope_scaling", "rope_theta", "tie_word_embeddings"])
    assert read(LLAMA, **nothing) == read(LLAMA)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_model_type_finds_its_family(model_type: str) -> None:
    config = SIZES | {"model_type": model_type}
    assert read(config).family == family_of(config).name == model_type.removesuffix("_text")


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_every_gguf_architecture_finds_its_family(architecture: str) -> None:
    assert family_of_gguf(architecture).name == architecture


def test_smollm2_as_published() -> None:
    config = to_model_config(
        {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_act": "silu",
            "hidden_size": 576,
            "initializer_range": 0.041666666666666664,
            "intermediate_size": 1536,
            "is_llama_config": True,
            "max_position_embeddings": 8192,
            "model_type": "llama",
            "num_attention_heads": 9,
            "num_hidden_layers": 30,
            "num_key_value_heads": 3,
            "pad_token_id": 2,
            "rms_norm_eps": 1e-05,
            "rope_interleaved": False,
            "rope_scaling": None,
            "rope_theta": 100000,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "vocab_size": 49152,
        }
    )
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (9, 3, 64)
    assert (config.tie_embeddings, config.rope.base, config.context_length) == (True, 100000.0, 8192)


def test_gemma3_sees_everything_in_every_sixth_layer() -> None:
    config = read(GEMMA, sliding_window=512)
    assert config.windows == (512, 512, 512, 512, 512, None, 512)
    assert (config.rope.base, config.local_rope) == (1_000_000.0, RopeConfig(10_000.0))
    assert (config.embedding_scale, config.query_scale, config.head_dim) == (8.0, 256**-0.5, 256)
    assert (config.norm_offset, config.sandwich_norm, config.qk_norm, config.tie_embeddings) == (1.0, True, True, True)


def test_gemma3_pattern_and_layer_types_say_the_same() -> None:
    types = ["sliding_attention", "full_attention"] * 3 + ["sliding_attention"]
    assert read(GEMMA, sliding_window_pattern=2) == read(GEMMA, layer_types=types)


def test_old_and_new_spelling_of_rope_say_the_same() -> None:
    """transformers 5 writes one dict where 4 wrote rope_theta and rope_scaling."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    old = read(LLAMA, rope_theta=5e5, rope_scaling=scaling | {"original_max_position_embeddings": 512})
    both = scaling | {"original_max_position_embeddings": 512, "rope_theta": 5e5}
    assert old == read(LLAMA, rope_parameters=both)
    assert old.rope.base == 5e5


def test_the_oldest_spelling_of_a_scaling_is_read_too() -> None:
    assert read(LLAMA, rope_scaling={"type": "linear", "factor": 2.0}).rope == RopeConfig(
        1e4, "linear", {"factor": 2.0}
    )


def test_gemma3_old_and_new_spelling_of_two_ropes_say_the_same() -> None:
    old = read(GEMMA, rope_theta=5e5, rope_local_base_freq=2e4, rope_scaling={"rope_type": "linear", "factor": 8.0})
    nested = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
    }
    assert old == read(GEMMA, rope_parameters=nested)
    assert (old.rope.scaling, old.local_rope) == ("linear", RopeConfig(2e4))


def test_mistral_has_one_window_everywhere_or_none() -> None:
    mistral = SIZES | {"model_type": "mistral"}
    assert read(mistral, sliding_window=16).windows == (16,) * 4
    assert read(mistral, sliding_window=None).windows == ()


def test_qwen2_windows_are_off_unless_switched_on() -> None:
    qwen = SIZES | {"model_type": "qwen2", "sliding_window": 16, "max_window_layers": 3}
    assert read(qwen).windows == ()
    assert read(qwen, use_sliding_window=True).windows == (None, None, None, 16)
    assert read(qwen).qkv_bias
    assert not read(qwen).output_bias


def test_qwen3_heads_are_128_wide_whatever_the_model() -> None:
    assert read(SIZES | {"model_type": "qwen3"}).head_dim == 128
    assert read(SIZES | {"model_type": "qwen3", "attention_bias": True}).output_bias


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}, 4096),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}, 2048),
        ({"rope_type": "dynamic", "factor": 3.0}, 6144),
        ({"rope_type": "linear", "factor": 4.0}, 2048),
    ],
)
def test_scaling_that_was_switched_on_stretches_the_context(scaling: dict[str, Any], length: int) -> None:
    assert read(LLAMA, rope_scaling=scaling).context_length == length


REFUSED = [
    ({"hidden_size": None}, "hidden_size"),
    ({"hidden_size": "64"}, "hidden_size"),
    ({"num_hidden_layers": 0}, "num_hidden_layers"),
    ({"vocab_size": True}, "vocab_size"),
    ({"rms_norm_eps": -1.0}, "rms_norm_eps"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
    ({"num_key_value_heads": 3}, "num_key_value_heads"),
    ({"head_dim": 7}, "head_dim"),
    ({"hidden_act": "relu"}, "hidden_act"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "longrope"),
    ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
    ({"rope_scaling": "linear"}, "rope_scaling"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}}, "high_freq_factor"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
    ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    ({"model_type": "gemma3_text", "layer_types": ["full_attention"] * 3}, "layer_types"),
    ({"model_type": "gemma3_text", "layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
    ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ({"model_type": "gemma3", "text_config": {"hidden_size": 64}}, "only text models"),
]


@pytest.mark.parametrize(("changes", "named"), REFUSED)
def test_what_the_decoder_does_not_have_is_refused_by_name_in_one_line(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedConfig, match=named) as caught:
        read(LLAMA, **changes)
    assert "\n" not in str(caught.value)


def test_what_transformers_saved_from_a_gguf_is_dense_and_welcome() -> None:
    saved = {"quantization_config": {"quant_method": "gguf", "dequantize": False}}
    assert read(LLAMA, **saved) == read(LLAMA)


def test_an_unknown_architecture_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownArchitecture, match=r"'mamba'.*llama, mistral, qwen2, qwen3, gemma3"):
        read(LLAMA, model_type="mamba")
    with pytest.raises(UnknownArchitecture, match="'phi3'"):
        family_of_gguf("phi3")
    with pytest.raises(CheckpointError, match="model_type is missing"):
        to_model_config(SIZES)


JUNK: list[Any] = [None, 0, -1, 1, 1.5, float("inf"), True, "", "x", [], ["x"], [None], {}, {"x": 1}, {"factor": "2"}]


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("scaling", ["default", "linear", "llama3", "yarn", "dynamic"])
def test_no_junk_in_a_config_is_more_than_a_one_line_error(model_type: str, scaling: str) -> None:
    """Every key that any family reads, at the top and among the rope parameters, with every kind of wrong value."""
    rope = {"rope_type": scaling, "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 1e4}
    full = SIZES | {"model_type": model_type, "use_sliding_window": True, "sliding_window": 8, "rope_parameters": rope}
    keys = {*full, "layer_types", "max_window_layers", "sliding_window_pattern", "head_dim", "num_key_value_heads"}
    keys |= {"rope_scaling", "hidden_act", "hidden_activation", "rms_norm_eps", "query_pre_attn_scalar", "text_config"}
    keys |= {"tie_word_embeddings", "attention_bias", "original_max_position_embeddings", "quantization_config"}
    configs = [full | {key: value} for key in keys for value in JUNK]
    nested = {*rope, "original_max_position_embeddings", "beta_fast", "truncate", "full_attention", "type"}
    configs += [full | {"rope_parameters": rope | {key: value}} for key in nested for value in JUNK]
    refused = []
    for config in configs:
        try:
            assert to_model_config(config).num_layers >= 1
        except CheckpointError as error:
            refused.append(str(error))
    assert len(refused) > len(configs) / 4
    assert not [message for message in refused if "\n" in message]
