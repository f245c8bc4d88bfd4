"""Qwen3 (dense): RMSNorm over each head of q and k, head size 128 whatever the width, no biases unless stated."""

from model.config import ModelConfig
from model.families import qwen2, reading
from model.families.family import Family, Json
from model.families.tensors import PLAIN_TENSORS


def read(config: Json) -> ModelConfig:
    """config.json -> ModelConfig. Defaults are those of the original's config class."""
    rope = reading.rope(config)
    bias = reading.flag(config, "attention_bias", False)
    return ModelConfig(
        family="qwen3",
        **reading.common_fields(config, tie_embeddings=False, head_dim=128),
        context_length=reading.context_length(config, rope),
        rope=rope,
        activation=reading.activation(config, "hidden_act", "silu"),
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        windows=qwen2.windows(config),
    )


FAMILY = Family(
    name="qwen3",
    model_types=("qwen3",),
    gguf_architectures=("qwen3",),
    read=read,
    tensors=PLAIN_TENSORS,
)
