"""Tensors by name become a decoder: fused matrices, biases, and errors of the caller."""

import pytest
import torch

from model.building import build_decoder
from model.config import ModelConfig
from model.families.registry import to_model_config, weight_shapes

SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 64,
}


def config(model_type: str, **changes: object) -> ModelConfig:
    return to_model_config(SIZES | {"model_type": model_type} | changes)


def tensors(of: ModelConfig) -> dict[str, torch.Tensor]:
    return {name: torch.randn(shape) for name, shape in weight_shapes(of).items()}


def test_q_k_v_and_gate_up_are_one_matrix_each_in_that_order() -> None:
    weights = tensors(config("qwen2"))
    whole = dict(weights)
    layer = build_decoder(config("qwen2"), weights).layers[1]
    x = torch.randn(3, 16)
    parts = [
        x @ whole[f"model.layers.1.self_attn.{part}_proj.weight"].t()
        + whole[f"model.layers.1.self_attn.{part}_proj.bias"]
        for part in "qkv"
    ]
    torch.testing.assert_close(layer.attention.qkv(x), torch.cat(parts, dim=1))
    gate_up = [x @ whole[f"model.layers.1.mlp.{part}_proj.weight"].t() for part in ("gate", "up")]
    torch.testing.assert_close(layer.mlp.gate_up(x), torch.cat(gate_up, dim=1))


def test_building_takes_every_tensor_out_of_the_dict() -> None:
    weights = tensors(config("gemma3_text"))
    build_decoder(config("gemma3_text"), weights)
    assert weights == {}


def test_windowed_layers_turn_by_their_own_base_and_the_others_do_not() -> None:
    of = config("gemma3_text", layer_types=["sliding_attention", "full_attention"])
    decoder = build_decoder(of, tensors(of))
    assert [layer.rotary_id for layer in decoder.layers] == [1, 0]
    assert [rotary.config.base for rotary in decoder.rotaries] == [1_000_000.0, 10_000.0]


def test_a_family_with_one_base_and_a_window_has_one_rotary() -> None:
    of = config("mistral", sliding_window=8)
    decoder = build_decoder(of, tensors(of))
    assert [layer.rotary_id for layer in decoder.layers] == [0, 0]
    assert len(decoder.rotaries) == 1


def test_scores_are_scaled_by_the_head_size_unless_the_config_says_otherwise() -> None:
    for of, scale in ((config("llama"), 6**-0.5), (config("gemma3_text", query_pre_attn_scalar=9), 1 / 3)):
        assert build_decoder(of, tensors(of)).layers[0].attention.scale == pytest.approx(scale)


def test_a_tensor_of_the_wrong_shape_stops_the_build() -> None:
    weights = tensors(config("llama"))
    weights["model.layers.1.mlp.down_proj.weight"] = torch.randn(24, 16)
    with pytest.raises(AssertionError, match="down"):
        build_decoder(config("llama"), weights)
