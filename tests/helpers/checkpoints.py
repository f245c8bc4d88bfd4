"""Tiny checkpoints on disk: a random model of each family, as Hugging Face writes it and as llama.cpp's converter does.

The converter's steps (names, row order of q and k, gemma's norms) are done here in their forward direction.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray
from safetensors.numpy import save_file

Tensors = dict[str, NDArray[Any]]

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCAB = 2, 64, 4, 2, 32, 96, 40

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_PLAIN_NORMS = {"post_attention_layernorm": "ffn_norm"}
_GEMMA_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def random_tensors(family: str, *, seed: int = 0, tied: bool = False) -> Tensors:
    """All tensors of a tiny model of this family under Hugging Face's names, float32."""
    rng = np.random.default_rng(seed)

    def values(*shape: int) -> NDArray[Any]:
        return rng.standard_normal(shape, np.float32)

    tensors = {"model.embed_tokens.weight": values(VOCAB, HIDDEN), "model.norm.weight": values(HIDDEN)}
    if not tied:
        tensors["lm_head.weight"] = values(VOCAB, HIDDEN)
    for layer in range(LAYERS):
        own = {
            "input_layernorm.weight": values(HIDDEN),
            "post_attention_layernorm.weight": values(HIDDEN),
            "self_attn.q_proj.weight": values(HEADS * HEAD, HIDDEN),
            "self_attn.k_proj.weight": values(KV_HEADS * HEAD, HIDDEN),
            "self_attn.v_proj.weight": values(KV_HEADS * HEAD, HIDDEN),
            "self_attn.o_proj.weight": values(HIDDEN, HEADS * HEAD),
            "mlp.gate_proj.weight": values(INNER, HIDDEN),
            "mlp.up_proj.weight": values(INNER, HIDDEN),
            "mlp.down_proj.weight": values(HIDDEN, INNER),
        }
        if family == "qwen2":
            own |= {f"self_attn.{part}_proj.bias": values(len(own[f"self_attn.{part}_proj.weight"])) for part in "qkv"}
        if family in ("qwen3", "gemma3"):
            own |= {f"self_attn.{part}_norm.weight": values(HEAD) for part in "qk"}
        if family == "gemma3":
            own |= {f"{side}_feedforward_layernorm.weight": values(HIDDEN) for side in ("pre", "post")}
        tensors |= {f"model.layers.{layer}.{name}": value for name, value in own.items()}
    return tensors


def write_hf(
    directory: Path, tensors: Mapping[str, NDArray[Any]], config: Mapping[str, Any], *, shards: int = 1
) -> Path:
    """A Hugging Face directory: config.json and the weights in one file, or in several with an index."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(dict(tensors), directory / "model.safetensors")
        return directory
    weight_map = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[shard::shards]}
        save_file(part, directory / name)
        weight_map |= dict.fromkeys(part, name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return directory


def gguf_metadata(family: str) -> dict[str, Any]:
    """The architecture keys that a converter writes for `CONFIG`, without their prefix."""
    metadata = {
        "context_length": 256,
        "embedding_length": HIDDEN,
        "block_count": LAYERS,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    return metadata | ({"attention.sliding_window": 16} if family == "gemma3" else {})


def converted(family: str, tensors: Mapping[str, NDArray[Any]]) -> Tensors:
    """What a converter stores: GGUF names; llama's q and k interleaved; gemma's norms plus one."""
    return {_gguf_name(family, name): _converted(family, name, value) for name, value in tensors.items()}


def _gguf_name(family: str, name: str) -> str:
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    top["lm_head.weight"] = "output.weight"
    if name in top:
        return top[name]
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    names = _LAYER_NAMES | (_GEMMA_NORMS if family == "gemma3" else _PLAIN_NORMS)
    return f"blk.{layer}.{names[module]}.{kind}"


def _converted(family: str, name: str, value: NDArray[Any]) -> NDArray[Any]:
    if family in ("llama", "mistral") and ("q_proj" in name or "k_proj" in name):
        heads = HEADS if "q_proj" in name else KV_HEADS
        halves = value.reshape(heads, 2, len(value) // heads // 2, -1)
        return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(value.shape))
    return value + 1 if family == "gemma3" and name.endswith("norm.weight") else value


def write_gguf(
    path: Path,
    architecture: str,
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, Any],
    *,
    extra: Mapping[str, Any] | None = None,
    types: Mapping[str, GGMLQuantizationType] | None = None,
    raw: Mapping[str, GGMLQuantizationType] | None = None,
) -> Path:
    """Write a GGUF of already converted tensors.

    metadata goes under "{architecture}.", extra under its full keys. types quantises; raw says what bytes already are.
    """
    writer = GGUFWriter(path, architecture)
    for key, value in {f"{architecture}.{key}": value for key, value in metadata.items()}.items():
        _add(writer, key, value)
    for key, value in (extra or {}).items():
        _add(writer, key, value)
    for name, tensor in tensors.items():
        kind = (types or {}).get(name)
        data = tensor if kind is None else quantize(tensor, kind)
        writer.add_tensor(name, data, raw_dtype=kind or (raw or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def tiny_gguf(path: Path, family: str = "llama", *, tied: bool = False, **settings: Any) -> Path:
    """A complete GGUF of a tiny random model, float32."""
    tensors = converted(family, random_tensors(family, tied=tied))
    architecture = "llama" if family == "mistral" else family
    return write_gguf(path, architecture, tensors, gguf_metadata(family), **settings)


def tiny_hf(directory: Path, **changes: Any) -> Path:
    """A complete Hugging Face directory of a tiny random llama; changes go into config.json."""
    return write_hf(directory, random_tensors("llama"), CONFIG | changes)
