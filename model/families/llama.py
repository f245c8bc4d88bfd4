"""Llama 2, 3, 3.1, 3.2 (text), SmolLM and everything else that says model_type "llama"."""

from model.config import ModelConfig
from model.families import reading
from model.families.family import Family, Json
from model.families.tensors import PLAIN_TENSORS


def read(config: Json) -> ModelConfig:
    """config.json -> ModelConfig. Defaults are those of the original's config class."""
    rope = reading.rope(config)
    bias = reading.flag(config, "attention_bias", False)
    return ModelConfig(
        family="llama",
        **reading.common_fields(config, tie_embeddings=False),
        context_length=reading.context_length(config, rope),
        rope=rope,
        activation=reading.activation(config, "hidden_act", "silu"),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=reading.flag(config, "mlp_bias", False),
    )


FAMILY = Family(
    name="llama",
    model_types=("llama",),
    gguf_architectures=("llama",),
    read=read,
    tensors=PLAIN_TENSORS,
    gguf_permuted=("q", "k", "q_bias", "k_bias"),
)
