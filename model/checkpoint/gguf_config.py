"""GGUF metadata said in the words of Hugging Face's config.json and generation_config.json.

Keys are those of ggml's gguf.md and of llama.cpp's converter. Impossible values pass through here: `model.families`
checks every config alike, wherever it came from.
"""

from collections.abc import Mapping
from typing import Any

from gguf.constants import TokenType

from model.errors import CheckpointError
from model.families.registry import family_of_gguf

# Hugging Face's key -> GGUF's, behind "{architecture}."
_KEYS = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "sliding_window": "attention.sliding_window",
    "final_logit_softcapping": "final_logit_softcapping",
    "attn_logit_softcapping": "attn_logit_softcapping",
}
_YARN_KEYS = {
    "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}
_SAMPLING_KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Special tokens that end a turn or a text, whatever the metadata says: converters often record only one of them.
_END_NAMES = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>")

Shapes = Mapping[str, tuple[int, ...]]


def to_config(metadata: Mapping[str, Any], shapes: Shapes, *, rope_divisors: list[float] | None) -> dict[str, Any]:
    """Metadata and the shapes of the GGUF's tensors -> config.json. Raises UnknownArchitecture, CheckpointError.

    rope_divisors: what the rope_freqs tensor holds, one number per pair of dimensions (llama 3.1's scaling), if any.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise CheckpointError("GGUF: general.architecture is missing, so the model's architecture is unknown")
    family = family_of_gguf(architecture)
    prefix = f"{architecture}."
    known = {key.removeprefix(prefix): metadata[key] for key in metadata if key.startswith(prefix)}
    if known.get("expert_count"):
        raise CheckpointError("GGUF: mixture-of-experts models are not served")
    windowed_llama = architecture == "llama" and known.get("attention.sliding_window")
    return {
        "model_type": "mistral" if windowed_llama else family.model_types[0],
        **{key: known[its] for key, its in _KEYS.items() if its in known},
        **_from_shapes(shapes),
        **_head_size(known),
        **_rope(known, rope_divisors),
        **(_gemma3(known) if family.name == "gemma3" else {}),
        **{key: ids[0] for key in ("bos_token_id",) if (ids := _ids(metadata, (key,)))},
    }


def to_generation_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata -> generation_config.json: the end tokens, and the sampling settings that newer files record."""
    sampling = {key: metadata[its] for key, its in _SAMPLING_KEYS.items() if its in metadata}
    ends = _ids(metadata, _END_KEYS)
    return {**sampling, **({"eos_token_id": ends} if ends else {})}


def end_ids(metadata: Mapping[str, Any]) -> frozenset[int]:
    """Ids that end an answer: those that the metadata names, and special tokens that are known to end a turn."""
    tokens, kinds = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    named: list[int] = []
    if isinstance(tokens, list) and isinstance(kinds, list):
        special = (i for i, kind in enumerate(kinds) if kind in (TokenType.CONTROL, TokenType.USER_DEFINED))
        named = [i for i in special if i < len(tokens) and tokens[i] in _END_NAMES]
    return frozenset([*_ids(metadata, _END_KEYS), *named])


def _ids(metadata: Mapping[str, Any], keys: tuple[str, ...]) -> list[int]:
    """The token ids recorded under `tokenizer.ggml.{key}`, in the keys' order, each once."""
    values = (metadata.get(f"tokenizer.ggml.{key}") for key in keys)
    return list(dict.fromkeys(value for value in values if isinstance(value, int)))


def _from_shapes(shapes: Shapes) -> dict[str, Any]:
    """What the tensors themselves say: vocabulary size, tied head, biases."""
    embedding = shapes.get("token_embd.weight")
    if embedding is None or len(embedding) != 2:
        raise CheckpointError("GGUF: tensor 'token_embd.weight' is missing or no matrix")
    return {
        "vocab_size": embedding[0],
        "tie_word_embeddings": "output.weight" not in shapes,
        "attention_bias": "blk.0.attn_q.bias" in shapes,
        "mlp_bias": "blk.0.ffn_gate.bias" in shapes,
    }


def _head_size(known: Mapping[str, Any]) -> dict[str, Any]:
    """head_dim, and how much of it rotates."""
    hidden, heads = known.get("embedding_length"), known.get("attention.head_count")
    if not isinstance(hidden, int) or not isinstance(heads, int) or heads < 1:
        raise CheckpointError(f"GGUF: embedding_length {hidden!r} and head_count {heads!r} must be positive integers")
    size = known.get("attention.key_length", hidden // heads)
    if known.get("attention.value_length", size) != size:
        raise CheckpointError("GGUF: keys and values of different sizes are not supported")
    if known.get("rope.dimension_count", size) != size:
        raise CheckpointError(f"GGUF: rope.dimension_count must be the head size {size}; heads rotate whole")
    return {"head_dim": size}


def _rope(known: Mapping[str, Any], divisors: list[float] | None) -> dict[str, Any]:
    """rope_scaling, and the divisors of a rope_freqs tensor as `rope_divisors`."""
    kind = known.get("rope.scaling.type", "none")
    if kind not in ("none", "linear", "yarn"):
        raise CheckpointError(f"GGUF: rope.scaling.type {kind!r} is not supported; kvell knows none, linear and yarn")
    for key, neutral in (
        ("attn_factor", 1),
        ("yarn_attn_factor", 1),
        ("yarn_ext_factor", 1),
        ("yarn_log_multiplier", 0),
    ):
        if known.get(f"rope.scaling.{key}", neutral) not in (neutral, -1 if key == "yarn_ext_factor" else neutral):
            raise CheckpointError(f"GGUF: rope.scaling.{key} = {known[f'rope.scaling.{key}']} is not supported")
    stated: dict[str, Any] = {"rope_divisors": divisors} if divisors else {}
    if kind == "linear" or (kind == "none" and known.get("rope.scale_linear", 1) != 1):
        factor = known.get("rope.scaling.factor", known.get("rope.scale_linear"))
        stated["rope_scaling"] = {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        params = {key: known[its] for key, its in _YARN_KEYS.items() if its in known}
        stated["rope_scaling"] = {"rope_type": "yarn", **params}
    return stated


def _gemma3(known: Mapping[str, Any]) -> dict[str, Any]:
    """What llama.cpp has in its code and not in the file: the query scale, the layer pattern, the local rope base.

    Only the 27B model (62 layers) scales queries by hidden/heads and not by the head size.
    """
    layers, hidden, heads = known.get("block_count"), known["embedding_length"], known["attention.head_count"]
    size = known.get("attention.key_length", hidden // heads)
    pattern = known.get("attention.sliding_window_pattern", 6)
    windowed = [bool(layer_is) for layer_is in pattern] if isinstance(pattern, list) else None
    return {
        "query_pre_attn_scalar": hidden // heads if layers == 62 else size,
        "rope_local_base_freq": known.get("rope.freq_base_swa", 10000.0),
        "hidden_activation": "gelu_pytorch_tanh",
        **({"sliding_window_pattern": pattern} if windowed is None else {"layer_types": _layer_types(windowed)}),
    }


def _layer_types(windowed: list[bool]) -> list[str]:
    return ["sliding_attention" if is_windowed else "full_attention" for is_windowed in windowed]
