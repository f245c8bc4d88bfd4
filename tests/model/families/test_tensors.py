"""Names and shapes of a model's tensors, and that every family's tables hold together."""

import re

import pytest

from model.families.registry import FAMILIES, tensor_name, to_model_config, weight_shapes
from model.families.tensors import role_shapes

SIZES = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 128,
}


def shapes_of(model_type: str, **changes: object) -> dict[str, tuple[int, ...]]:
    return weight_shapes(to_model_config(SIZES | {"model_type": model_type} | changes))


def test_a_llama_has_nine_tensors_per_layer_and_three_besides() -> None:
    shapes = shapes_of("llama")
    assert len(shapes) == 2 * 9 + 3
    assert shapes["model.layers.1.self_attn.q_proj.weight"] == (80, 64)
    assert shapes["model.layers.1.self_attn.k_proj.weight"] == (20, 64)
    assert shapes["model.layers.0.self_attn.o_proj.weight"] == (64, 80)
    assert shapes["model.layers.0.mlp.down_proj.weight"] == (64, 96)
    assert shapes["lm_head.weight"] == shapes["model.embed_tokens.weight"] == (100, 64)


def test_a_tied_model_has_no_head() -> None:
    assert "lm_head.weight" not in shapes_of("llama", tie_word_embeddings=True)


def test_biases_and_head_norms_are_there_where_the_family_has_them() -> None:
    qwen2, qwen3 = shapes_of("qwen2"), shapes_of("qwen3")
    assert qwen2["model.layers.0.self_attn.q_proj.bias"] == (80,)
    assert "model.layers.0.self_attn.o_proj.bias" not in qwen2
    assert qwen3["model.layers.0.self_attn.k_norm.weight"] == (10,)
    assert "model.layers.0.self_attn.q_proj.bias" not in qwen3
    assert shapes_of("llama", mlp_bias=True)["model.layers.1.mlp.up_proj.bias"] == (96,)


def test_gemmas_norm_before_the_mlp_is_not_llamas() -> None:
    """The same name, post_attention_layernorm, is the norm before the MLP in one and after attention in the other."""
    llama = to_model_config(SIZES | {"model_type": "llama"})
    gemma = to_model_config(SIZES | {"model_type": "gemma3_text"})
    assert tensor_name(llama, "mlp_norm", 0) == tensor_name(gemma, "attention_post_norm", 0)
    assert tensor_name(gemma, "mlp_norm", 0) == "model.layers.0.pre_feedforward_layernorm.weight"


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_no_two_roles_share_a_name_and_every_role_has_one(family: object) -> None:
    known = FAMILIES[family.name]  # type: ignore[attr-defined]
    config = to_model_config(SIZES | {"model_type": known.model_types[0]})
    roles = role_shapes(config)
    for names in ([known.tensors[role].hf for role in roles], [known.tensors[role].gguf for role in roles]):
        assert len(set(names)) == len(names)
    assert set(known.gguf_permuted) <= set(known.tensors)


@pytest.mark.parametrize("family", FAMILIES)
def test_rotary_frequencies_are_ignored_and_weights_are_not(family: str) -> None:
    patterns = FAMILIES[family].ignore
    ignored = ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"]
    assert all(any(re.fullmatch(pattern, name) for pattern in patterns) for name in ignored)
    config = to_model_config(SIZES | {"model_type": FAMILIES[family].model_types[0]})
    assert not any(re.fullmatch(pattern, name) for pattern in patterns for name in weight_shapes(config))
