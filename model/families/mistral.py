"""Mistral 7B and its kin: Llama with one sliding window over all layers, or none. Its GGUFs call themselves llama."""

from model.config import ModelConfig
from model.families import reading
from model.families.family import Family, Json
from model.families.tensors import PLAIN_TENSORS


def read(config: Json) -> ModelConfig:
    """config.json -> ModelConfig. sliding_window null or absent: every layer sees everything."""
    rope = reading.rope(config)
    common = reading.common_fields(config, tie_embeddings=False)
    window = None if config.get("sliding_window") is None else reading.count(config, "sliding_window")
    return ModelConfig(
        family="mistral",
        **common,
        context_length=reading.context_length(config, rope),
        rope=rope,
        activation=reading.activation(config, "hidden_act", "silu"),
        windows=() if window is None else (window,) * common["num_layers"],
    )


FAMILY = Family(
    name="mistral",
    model_types=("mistral",),
    gguf_architectures=("mistral",),
    read=read,
    tensors=PLAIN_TENSORS,
    gguf_permuted=("q", "k"),
)
