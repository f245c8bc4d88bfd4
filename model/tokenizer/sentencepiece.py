"""A SentencePiece model behind our face, and loading it from tokenizer.model.

SentencePiece never matches control symbols in text, so special-token text that a user types is spelled out; a rendered
template is cut at its special tokens and each stretch between them encoded by itself.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from model.tokenizer import pieces, spm_proto
from model.tokenizer.base import TokenizerError, check_text
from model.tokenizer.special import SpecialFinder
from model.tokenizer.spm_proto import PieceType


class SentencePieceTokenizer:
    """proto is a serialised ModelProto in which every special token is a control symbol (or the unknown one)."""

    def __init__(
        self,
        proto: bytes,
        *,
        special_tokens: dict[str, int],
        bos_id: int | None,
        eos_ids: Iterable[int],
        adds_bos: bool,
        space_per_section: bool = True,
    ) -> None:
        """space_per_section: whether the dummy space comes before every stretch of text in a template, as
        SentencePiece and llama.cpp do, or only at its very beginning (transformers' legacy=False)."""
        self._processor = _load(proto)
        self.special_tokens = special_tokens
        self._finder = SpecialFinder(special_tokens)
        self.vocab_size: int = self._processor.get_piece_size()
        self.bos_id = bos_id
        self.eos_ids = frozenset(eos_ids)
        self.adds_bos = adds_bos and bos_id is not None
        self.adds_space = self._processor.encode("a", out_type=str)[0].startswith(pieces.SPACE)
        spaceless = self.adds_space and not space_per_section
        self._later = _load(proto + spm_proto.NO_DUMMY_PREFIX) if spaceless else self._processor

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        check_text(text)
        bos = [self.bos_id] if add_bos and self.adds_bos and self.bos_id is not None else []
        return bos + self._ids(self._processor, text)

    def encode_template(self, text: str, *, literal_mark: str | None = None) -> list[int]:
        check_text(text)
        ids: list[int] = []
        for section in self._finder.sections(text, mark=literal_mark):
            if isinstance(section, int):
                ids.append(section)
            else:
                ids += self._ids(self._later if ids else self._processor, section)
        return ids

    def piece(self, token_id: int) -> bytes:
        sp = self._processor
        if not 0 <= token_id < self.vocab_size:
            return b""
        if sp.is_control(token_id) or sp.is_unknown(token_id) or sp.is_unused(token_id):
            return b""
        token = sp.id_to_piece(token_id)
        return pieces.metaspace_with_bytes(token) if sp.is_byte(token_id) else pieces.metaspace(token)

    def name(self, token_id: int) -> str:
        sp = self._processor
        if 0 <= token_id < self.vocab_size and (sp.is_control(token_id) or sp.is_unknown(token_id)):
            return str(sp.id_to_piece(token_id))
        return self.piece(token_id).decode("utf-8", errors="replace")

    def special_id(self, text: str) -> int | None:
        return self.special_tokens.get(text)

    def _ids(self, processor: SentencePieceProcessor, text: str) -> list[int]:
        ids: list[int] = processor.encode(text, out_type=int)
        return ids


def _load(proto: bytes) -> SentencePieceProcessor:
    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(proto)
    except Exception as error:  # its binding raises RuntimeError and, for C++ exceptions, others
        raise TokenizerError(f"not a SentencePiece model that can be read: {error}") from error
    return processor


def load(path: Path, config: Mapping[str, Any], added: Mapping[str, int]) -> SentencePieceTokenizer:
    """tokenizer.model, with tokenizer_config.json and added_tokens.json (text -> id). Raises TokenizerError."""
    try:
        proto = path.read_bytes()
        size: int = _load(proto).get_piece_size()
        proto = spm_proto.with_tokens(proto, size, _added_tokens(config, added, size))
        return _from_proto(proto, config)
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error}") from error
    except OSError as error:
        raise TokenizerError(f"{path}: {error.strerror}") from error


def _added_tokens(config: Mapping[str, Any], added: Mapping[str, int], size: int) -> dict[int, tuple[str, PieceType]]:
    """What the configs say of tokens: new ones, and old ones that they call special."""
    tokens = {token_id: (text, PieceType.USER_DEFINED) for text, token_id in added.items() if token_id >= size}
    for key, entry in (config.get("added_tokens_decoder") or {}).items():
        if entry.get("special"):
            tokens[int(key)] = (entry["content"], PieceType.CONTROL)
        elif int(key) >= size:
            tokens[int(key)] = (entry["content"], PieceType.USER_DEFINED)
    return tokens


def _from_proto(proto: bytes, config: Mapping[str, Any]) -> SentencePieceTokenizer:
    sp = _load(proto)
    special = {str(sp.id_to_piece(i)): i for i in range(sp.get_piece_size()) if sp.is_control(i) or sp.is_unknown(i)}
    adds_bos = config.get("add_bos_token")
    bos_id = _named_id(config.get("bos_token"), special, sp.bos_id())
    eos_id = _named_id(config.get("eos_token"), special, sp.eos_id())
    return SentencePieceTokenizer(
        proto,
        special_tokens=special,
        bos_id=bos_id,
        eos_ids=[] if eos_id is None else [eos_id],
        adds_bos=adds_bos if isinstance(adds_bos, bool) else True,
        space_per_section=config.get("legacy") is not False,
    )


def _named_id(entry: Any, special: Mapping[str, int], default: int) -> int | None:
    """The id of a token that the config names (as text or object), else the model's own (-1: it has none)."""
    text = entry.get("content") if isinstance(entry, dict) else entry
    named = special.get(text) if isinstance(text, str) else None
    return named if named is not None else default if default >= 0 else None
