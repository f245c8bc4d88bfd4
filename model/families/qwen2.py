"""Qwen2 and Qwen2.5: Llama with biases on q, k and v, and a window over the upper layers where switched on."""

from model.config import ModelConfig
from model.errors import UnsupportedConfig
from model.families import reading
from model.families.family import Family, Json
from model.families.tensors import PLAIN_TENSORS


def windows(config: Json) -> tuple[int | None, ...]:
    """Window per layer, off unless use_sliding_window: by layer_types, else for layers from max_window_layers on."""
    if not reading.flag(config, "use_sliding_window", False):
        return ()
    first = config.get("max_window_layers")
    first = 28 if first is None else first
    if not isinstance(first, int):
        raise UnsupportedConfig("max_window_layers", first, "it must be an integer")
    window = reading.count(config, "sliding_window", 4096)
    return reading.windows_by_type(config, window, sliding=lambda layer: layer >= first)


def read(config: Json) -> ModelConfig:
    """config.json -> ModelConfig. Defaults are those of the original's config class."""
    rope = reading.rope(config)
    return ModelConfig(
        family="qwen2",
        **reading.common_fields(config, tie_embeddings=False),
        context_length=reading.context_length(config, rope),
        rope=rope,
        activation=reading.activation(config, "hidden_act", "silu"),
        qkv_bias=True,
        windows=windows(config),
    )


FAMILY = Family(
    name="qwen2",
    model_types=("qwen2",),
    gguf_architectures=("qwen2",),
    read=read,
    tensors=PLAIN_TENSORS,
)
