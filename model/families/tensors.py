"""Which tensors a decoder is made of: their roles, their names and their shapes. Data only; no torch here."""

from collections.abc import Mapping

from model.config import ModelConfig
from model.families.family import TensorName

_LAYER_HF, _LAYER_GGUF = "model.layers.{layer}.", "blk.{layer}."


def _layer(hf: str, gguf: str) -> TensorName:
    return TensorName(_LAYER_HF + hf, _LAYER_GGUF + gguf)


PLAIN_TENSORS: Mapping[str, TensorName] = {
    "embedding": TensorName("model.embed_tokens.weight", "token_embd.weight"),
    "final_norm": TensorName("model.norm.weight", "output_norm.weight"),
    "head": TensorName("lm_head.weight", "output.weight"),
    "attention_norm": _layer("input_layernorm.weight", "attn_norm.weight"),
    "q": _layer("self_attn.q_proj.weight", "attn_q.weight"),
    "k": _layer("self_attn.k_proj.weight", "attn_k.weight"),
    "v": _layer("self_attn.v_proj.weight", "attn_v.weight"),
    "o": _layer("self_attn.o_proj.weight", "attn_output.weight"),
    "q_bias": _layer("self_attn.q_proj.bias", "attn_q.bias"),
    "k_bias": _layer("self_attn.k_proj.bias", "attn_k.bias"),
    "v_bias": _layer("self_attn.v_proj.bias", "attn_v.bias"),
    "o_bias": _layer("self_attn.o_proj.bias", "attn_output.bias"),
    "q_norm": _layer("self_attn.q_norm.weight", "attn_q_norm.weight"),
    "k_norm": _layer("self_attn.k_norm.weight", "attn_k_norm.weight"),
    "mlp_norm": _layer("post_attention_layernorm.weight", "ffn_norm.weight"),
    "gate": _layer("mlp.gate_proj.weight", "ffn_gate.weight"),
    "up": _layer("mlp.up_proj.weight", "ffn_up.weight"),
    "down": _layer("mlp.down_proj.weight", "ffn_down.weight"),
    "gate_bias": _layer("mlp.gate_proj.bias", "ffn_gate.bias"),
    "up_bias": _layer("mlp.up_proj.bias", "ffn_up.bias"),
    "down_bias": _layer("mlp.down_proj.bias", "ffn_down.bias"),
}

SANDWICH_TENSORS: Mapping[str, TensorName] = {
    **PLAIN_TENSORS,
    "attention_post_norm": _layer("post_attention_layernorm.weight", "post_attention_norm.weight"),
    "mlp_norm": _layer("pre_feedforward_layernorm.weight", "ffn_norm.weight"),
    "mlp_post_norm": _layer("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
}


def role_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every role that this configuration has. Matrices are (rows out, columns in)."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_rows, kv_rows = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (config.vocab_size, hidden),
        "final_norm": (hidden,),
        "attention_norm": (hidden,),
        "q": (q_rows, hidden),
        "k": (kv_rows, hidden),
        "v": (kv_rows, hidden),
        "o": (hidden, q_rows),
        "mlp_norm": (hidden,),
        "gate": (inner, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
    }
    if not config.tie_embeddings:
        shapes["head"] = (config.vocab_size, hidden)
    if config.qkv_bias:
        shapes |= {"q_bias": (q_rows,), "k_bias": (kv_rows,), "v_bias": (kv_rows,)}
    if config.output_bias:
        shapes["o_bias"] = (hidden,)
    if config.mlp_bias:
        shapes |= {"gate_bias": (inner,), "up_bias": (inner,), "down_bias": (hidden,)}
    if config.qk_norm:
        shapes |= {"q_norm": (config.head_dim,), "k_norm": (config.head_dim,)}
    if config.sandwich_norm:
        shapes |= {"attention_post_norm": (hidden,), "mlp_post_norm": (hidden,)}
    return shapes
