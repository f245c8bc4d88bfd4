"""From a checkpoint to its tokenizer. Knows which source is there; the other modules know how to read it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from model.tokenizer import hf, sentencepiece
from model.tokenizer.base import Tokenizer, TokenizerError
from model.tokenizer.chat import ChatTemplate
from model.tokenizer.gguf import open_gguf_tokenizer


class TokenizerSource(Protocol):
    """What a tokenizer needs of a checkpoint (`model.checkpoint.source.Checkpoint` has it)."""

    @property
    def format(self) -> Literal["gguf", "hf"]: ...

    @property
    def path(self) -> Path: ...

    @property
    def tokenizer_files(self) -> Mapping[str, Path]: ...

    @property
    def tokenizer_config(self) -> dict[str, Any]: ...

    @property
    def tokenizer_metadata(self) -> Mapping[str, Any]: ...


def open_tokenizer(checkpoint: TokenizerSource) -> Tokenizer:
    """The GGUF's own vocabulary, else tokenizer.json, else tokenizer.model. Raises TokenizerError."""
    if checkpoint.format == "gguf":
        return open_gguf_tokenizer(checkpoint.tokenizer_metadata)
    files = checkpoint.tokenizer_files
    if "tokenizer.json" in files:
        return hf.load(files["tokenizer.json"], checkpoint.tokenizer_config)
    if "tokenizer.model" in files:
        added = _added_tokens(files.get("added_tokens.json"))
        return sentencepiece.load(files["tokenizer.model"], checkpoint.tokenizer_config, added)
    raise TokenizerError(f"{checkpoint.path}: no tokenizer.json or tokenizer.model")


def _added_tokens(path: Path | None) -> dict[str, int]:
    """added_tokens.json: text -> id."""
    if path is None:
        return {}
    try:
        added = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path}: {error}") from error
    if not isinstance(added, dict) or not all(isinstance(token_id, int) for token_id in added.values()):
        raise TokenizerError(f"{path}: expected an object from token to id")
    return added


class ChatSource(TokenizerSource, Protocol):
    """What a chat template needs of a checkpoint."""

    @property
    def chat_template(self) -> str | None: ...


def open_chat_template(checkpoint: ChatSource, tokenizer: Tokenizer) -> ChatTemplate | None:
    """The checkpoint's chat template, if it has one. A broken template is reported when it is rendered."""
    if not checkpoint.chat_template:
        return None
    config, metadata = checkpoint.tokenizer_config, checkpoint.tokenizer_metadata
    named = {key: text for key, value in config.items() if key.endswith("_token") and (text := hf.token_text(value))}
    for key, name in _GGUF_TOKENS.items():
        token_id = metadata.get(f"tokenizer.ggml.{key}")
        if isinstance(token_id, int):
            named[name] = tokenizer.name(token_id)
    return ChatTemplate(checkpoint.chat_template, special_tokens=tokenizer.special_tokens, named_tokens=named)


_GGUF_TOKENS = {
    "bos_token_id": "bos_token",
    "eos_token_id": "eos_token",
    "unknown_token_id": "unk_token",
    "padding_token_id": "pad_token",
}
