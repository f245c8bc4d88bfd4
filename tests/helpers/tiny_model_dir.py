"""A tiny random model in Hugging Face's layout that a whole server can serve: weights, tokenizer, chat template.

Its tokens are bytes and a few merges; it writes nonsense, but always the same nonsense.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from model.families.registry import to_model_config, weight_shapes

SPECIAL = ("<|start|>", "<|end|>", "<|pad|>")
MERGES = [("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("Ġ", "the"), ("Ġ", "a"), ("o", "n")]
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
CONTEXT = 2048


def make_model_dir(path: Path, *, seed: int = 0, chats: bool = True) -> Path:
    """Write the model into `path`, which is made. Returns it."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save(str(path / "tokenizer.json"))
    end = tokenizer.token_to_id("<|end|>")
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_id": end,
    }
    named: dict[str, Any] = {"eos_token": "<|end|>", "pad_token": "<|pad|>"}
    if chats:
        named["chat_template"] = TEMPLATE
    for name, content in (("config.json", config), ("tokenizer_config.json", named), ("generation_config.json", {})):
        (path / name).write_text(json.dumps(content), encoding="utf-8")
    rng = np.random.default_rng(seed)
    shapes = weight_shapes(to_model_config(config))
    save_file({name: _values(rng, shape) for name, shape in shapes.items()}, path / "model.safetensors")
    return path


def _values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Norms around one; matrices large enough that the next token depends on all of the prompt."""
    if len(shape) == 1:
        return (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32)
    return (0.5 * rng.standard_normal(shape)).astype(np.float32)


def _tokenizer() -> Tokenizer:
    """Byte-level BPE with the few MERGES."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, *("".join(pair) for pair in MERGES)]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    return tokenizer
