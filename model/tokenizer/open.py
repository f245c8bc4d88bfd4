"""From a checkpoint to its tokenizer. Knows which source is there; the other modules know how to read it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from model.tokenizer import hf, sentencepiece
from model.tokenizer.base import Tokenizer, TokenizerError
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
