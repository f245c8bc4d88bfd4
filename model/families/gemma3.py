"""Gemma 3, text models: norms on both sides of attention and MLP, windowed layers with a rope base of their own."""

from model.config import ModelConfig, RopeConfig
from model.families import reading
from model.families.family import Family, Json
from model.families.tensors import SANDWICH_TENSORS


def read(config: Json) -> ModelConfig:
    """config.json -> ModelConfig. Defaults are those of the original's config class."""
    common = reading.common_fields(config, tie_embeddings=True, head_dim=256)
    everywhere, local = _ropes(config)
    bias = reading.flag(config, "attention_bias", False)
    return ModelConfig(
        family="gemma3",
        **common,
        context_length=reading.context_length(config, everywhere),
        rope=everywhere,
        local_rope=local,
        activation=reading.activation(config, "hidden_activation", "gelu_pytorch_tanh"),
        norm_offset=1.0,
        sandwich_norm=True,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        embedding_scale=common["hidden_size"] ** 0.5,
        query_scale=reading.number(config, "query_pre_attn_scalar", 256) ** -0.5,
        windows=_windows(config),
    )


def _windows(config: Json) -> tuple[int | None, ...]:
    """Every sixth layer (sliding_window_pattern) sees everything, unless layer_types says otherwise."""
    key = "sliding_window_pattern" if "sliding_window_pattern" in config else "_sliding_window_pattern"
    pattern = reading.count(config, key, 6)
    window = reading.count(config, "sliding_window", 4096)
    return reading.windows_by_type(config, window, sliding=lambda layer: (layer + 1) % pattern != 0)


def _ropes(config: Json) -> tuple[RopeConfig, RopeConfig]:
    """Rope of layers that see everything, and of windowed ones. Scaling applies to the former only, unless nested."""
    nested = reading.mapping(config, "rope_parameters")
    full = {"rope_theta": config.get("rope_theta"), **reading.mapping(config, "rope_scaling")}
    local = {"rope_theta": config.get("rope_local_base_freq")}
    full |= reading.mapping(nested, "full_attention")
    local |= reading.mapping(nested, "sliding_attention")
    return reading.rope_from(full, config, base=1_000_000.0), reading.rope_from(local, config, base=10_000.0)


FAMILY = Family(
    name="gemma3",
    model_types=("gemma3_text",),
    gguf_architectures=("gemma3",),
    read=read,
    tensors=SANDWICH_TENSORS,
    gguf_norm_offset=1.0,
)
