"""How config.json's keys become `ModelConfig` fields, for what all families have in common.

Every value is checked here, once: a missing key, an impossible number or a setting that the decoder does not have
raises UnsupportedConfig with its name. No torch here.
"""

from collections.abc import Callable, Mapping
from typing import Any

from model.config import Activation, RopeConfig, Scaling
from model.errors import UnsupportedConfig
from model.families.family import Json

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
_SCALINGS: Mapping[str, Scaling] = {
    "default": "none",
    "linear": "linear",
    "llama3": "llama3",
    "yarn": "yarn",
    "dynamic": "dynamic",
}
_PARAMS = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
)
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": (),
}
_OFF = ("final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention")


def count(config: Json, key: str, default: int | None = None) -> int:
    """A positive integer. A key that is absent or null takes the default; without a default it is an error."""
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnsupportedConfig(key, value, "it must be a positive integer")
    return value


def number(config: Json, key: str, default: float | None = None) -> float:
    """A positive number, else the default; without a default it is an error."""
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UnsupportedConfig(key, value, "it must be a positive number")
    return float(value)


def flag(config: Json, key: str, default: bool) -> bool:
    """true or false; absent or null is the default."""
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise UnsupportedConfig(key, value, "it must be true or false")
    return value


def mapping(config: Json, key: str) -> Mapping[str, Any]:
    """An object; absent or null is an empty one."""
    value = config.get(key) or {}
    if not isinstance(value, Mapping):
        raise UnsupportedConfig(key, value, "it must be an object")
    return value


def common_fields(config: Json, *, tie_embeddings: bool, head_dim: int | None = None) -> dict[str, Any]:
    """The `ModelConfig` fields that every family reads alike. tie_embeddings and head_dim are the family's defaults."""
    for key in _OFF:
        if config.get(key):
            raise UnsupportedConfig(key, config[key], "the decoder has no such thing")
    quantised = mapping(config, "quantization_config").get("quant_method", "none")
    if quantised not in ("none", "gguf"):  # "gguf": transformers once read it from a GGUF; what it saved is dense
        raise UnsupportedConfig("quant_method", quantised, "only GGUF files and unquantised safetensors are read")
    hidden, heads = count(config, "hidden_size"), count(config, "num_attention_heads")
    fields = {
        "vocab_size": count(config, "vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": count(config, "intermediate_size"),
        "num_layers": count(config, "num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": count(config, "num_key_value_heads", heads),
        "head_dim": count(config, "head_dim", head_dim or hidden // heads),
        "norm_eps": number(config, "rms_norm_eps", 1e-6),
        "tie_embeddings": flag(config, "tie_word_embeddings", tie_embeddings),
    }
    if heads % fields["num_kv_heads"]:
        raise UnsupportedConfig("num_key_value_heads", fields["num_kv_heads"], f"it must divide the {heads} heads")
    if fields["head_dim"] % 2:
        raise UnsupportedConfig("head_dim", fields["head_dim"], "rotary embeddings need an even size")
    return fields


def activation(config: Json, key: str, default: str) -> Activation:
    """The MLP's activation under the decoder's name."""
    value = config.get(key) or default
    if not isinstance(value, str) or value not in _ACTIVATIONS:
        raise UnsupportedConfig(key, value, f"it must be one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[value]


def rope(config: Json, *, base: float = 10000.0) -> RopeConfig:
    """Rotary embedding of a model with one kind of layer.

    Reads rope_theta and rope_scaling, and transformers 5's rope_parameters, which holds both.
    base is used where none is given. rope_divisors (GGUF's rope_freqs tensor, one number per pair) passes through.
    """
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    return rope_from({"rope_theta": config.get("rope_theta"), **mapping(config, key)}, config, base=base)


def rope_from(stated: Mapping[str, Any], config: Json, *, base: float) -> RopeConfig:
    """One dict of rope parameters -> RopeConfig. config supplies what the dict leaves to the model's own keys."""
    kind = stated.get("rope_type") or stated.get("type") or "default"
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise UnsupportedConfig("rope_type", kind, f"it must be one of {', '.join(_SCALINGS)}")
    rotated = stated.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if rotated not in (None, 1, 1.0):
        raise UnsupportedConfig("partial_rotary_factor", rotated, "heads rotate whole")
    theta = number(stated, "rope_theta", base)
    if theta <= 1.0:
        raise UnsupportedConfig("rope_theta", theta, "it must be more than 1")
    scaling = _SCALINGS[kind]
    params = {} if scaling == "none" else _scaling_params(stated, config, scaling)
    divisors = tuple(float(divisor) for divisor in config.get("rope_divisors") or ())
    return RopeConfig(base=theta, scaling=scaling, params=params, divisors=divisors)


def _scaling_params(stated: Mapping[str, Any], config: Json, scaling: Scaling) -> dict[str, float]:
    """The numbers of one scaling, checked. An optional one that is 0 or null counts as not stated, as it always did."""
    params = {key: number(stated, key) for key in _PARAMS if stated.get(key) or key in _NEEDED[scaling]}
    trained = count(config, "max_position_embeddings")
    if scaling == "dynamic":  # it grows beyond what the model was trained on, whatever else is stated
        params["original_max_position_embeddings"] = float(trained)
    if scaling in ("llama3", "yarn"):
        original = number(config, "original_max_position_embeddings", trained)
        params.setdefault("original_max_position_embeddings", original)
    if scaling == "yarn":
        params.setdefault("factor", trained / params["original_max_position_embeddings"])
        if not flag(stated, "truncate", True):
            params["truncate"] = 0.0
    if scaling == "llama3" and params["high_freq_factor"] <= params["low_freq_factor"]:
        raise UnsupportedConfig("high_freq_factor", params["high_freq_factor"], "it must exceed low_freq_factor")
    return params


def context_length(config: Json, rope_config: RopeConfig) -> int:
    """How many positions the model can use.

    max_position_embeddings, or what yarn and dynamic scaling stretch the original length to, where that is more:
    checkpoints that switch these on usually leave max_position_embeddings as it was.
    """
    stated = count(config, "max_position_embeddings")
    if rope_config.scaling not in ("yarn", "dynamic"):
        return stated
    params = rope_config.params
    return max(stated, int(params["factor"] * params["original_max_position_embeddings"]))


def windows_by_type(config: Json, window: int, *, sliding: Callable[[int], bool]) -> tuple[int | None, ...]:
    """Window per layer by layer_types, else for the layers that are sliding. () when every layer sees everything."""
    allowed = ("full_attention", "sliding_attention")
    default = [allowed[sliding(layer)] for layer in range(count(config, "num_hidden_layers"))]
    types = config.get("layer_types") or default
    if not isinstance(types, list | tuple):
        raise UnsupportedConfig("layer_types", types, "it must be a list")
    if len(types) != config["num_hidden_layers"]:
        raise UnsupportedConfig(
            "layer_types", f"{len(types)} entries", f"there are {config['num_hidden_layers']} layers"
        )
    for kind in types:
        if kind not in allowed:
            raise UnsupportedConfig("layer_types", kind, f"it must be one of {', '.join(allowed)}")
    windows = tuple(window if kind == "sliding_attention" else None for kind in types)
    return windows if any(windows) else ()
