"""The tokenizer inside a GGUF's metadata: byte-level BPE ("gpt2") or SentencePiece ("llama").

Keys and defaults are llama.cpp's. Knows metadata; reads no file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from model.tokenizer import spm_proto
from model.tokenizer.base import Tokenizer, TokenizerError
from model.tokenizer.hf import HFTokenizer
from model.tokenizer.pieces import SPACE
from model.tokenizer.pretokenizers import CUTTINGS, Cutting
from model.tokenizer.sentencepiece import SentencePieceTokenizer
from model.tokenizer.spm_proto import PieceType

_SPECIAL = (PieceType.CONTROL, PieceType.UNKNOWN)
_BYTE_PIECES = 256


def open_gguf_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """metadata: the file's `tokenizer.*` entries by full key. Raises TokenizerError."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        return _byte_level(_Vocabulary(metadata))
    if kind == "llama":
        return _sentencepiece(_Vocabulary(metadata))
    raise TokenizerError(f"GGUF: tokenizer.ggml.model = {kind!r} is not supported; kvell reads 'gpt2' and 'llama'")


@dataclass(frozen=True)
class _Vocabulary:
    """Metadata with its lists checked against each other."""

    metadata: Mapping[str, Any]

    @cached_property
    def tokens(self) -> list[str]:
        tokens: list[str] = self._list("tokens")
        if not tokens:
            raise TokenizerError("GGUF: tokenizer.ggml.tokens is missing or empty")
        return tokens

    @cached_property
    def types(self) -> list[int]:
        """Token types; everything is normal where the file has none."""
        types = self._list("token_type") or [int(PieceType.NORMAL)] * len(self.tokens)
        self._check("token_type", types)
        unused = {kind: int(PieceType.UNUSED) for kind in set(types) - set(PieceType)}
        return [unused.get(kind, kind) for kind in types] if unused else types

    @cached_property
    def scores(self) -> list[float]:
        scores: list[float] = self._list("scores") or [0.0] * len(self.tokens)
        self._check("scores", scores)
        return scores

    @cached_property
    def merges(self) -> list[tuple[str, str]]:
        pairs = [tuple(merge.split(" ", 1)) for merge in self._list("merges")]
        if any(len(pair) != 2 for pair in pairs):
            raise TokenizerError("GGUF: tokenizer.ggml.merges has an entry that is not two tokens")
        return [(pair[0], pair[1]) for pair in pairs]

    @cached_property
    def special(self) -> dict[str, int]:
        return {self.tokens[token_id]: token_id for kind in _SPECIAL for token_id in self.of_type(kind)}

    def get(self, key: str, default: Any) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{key}", default)

    def token_id(self, name: str) -> int | None:
        """The id recorded for "bos", "eos", "unknown" ... if it is one."""
        token_id = self.get(f"{name}_token_id", None)
        return token_id if isinstance(token_id, int) and 0 <= token_id < len(self.tokens) else None

    def of_type(self, kind: PieceType) -> list[int]:
        """Ids of the tokens of one type, ascending."""
        wanted = int(kind)  # comparing plain numbers matters: vocabularies are large
        return [token_id for token_id, its in enumerate(self.types) if its == wanted]

    def ids(self, *names: str) -> list[int]:
        return [token_id for name in names if (token_id := self.token_id(name)) is not None]

    def _list(self, key: str) -> list[Any]:
        value = self.get(key, [])
        if not isinstance(value, list):
            raise TokenizerError(f"GGUF: tokenizer.ggml.{key} is no list")
        return value

    def _check(self, key: str, values: list[Any]) -> None:
        if len(values) != len(self.tokens):
            raise TokenizerError(f"GGUF: tokenizer.ggml.{key} has {len(values)} entries for {len(self.tokens)} tokens")


def _cutting(vocabulary: _Vocabulary) -> Cutting:
    name = vocabulary.get("pre", "default")
    if name not in CUTTINGS:
        known = ", ".join(sorted(CUTTINGS))
        raise TokenizerError(f"GGUF: tokenizer.ggml.pre = {name!r} is not supported; kvell knows {known}")
    return CUTTINGS[name]


def _byte_level(vocabulary: _Vocabulary) -> HFTokenizer:
    """Rebuild what the model's tokenizer.json said."""
    cutting = _cutting(vocabulary)
    tokens = {token: token_id for token_id, token in enumerate(vocabulary.tokens)}
    try:
        backend = Backend(models.BPE(vocab=tokens, merges=vocabulary.merges, ignore_merges=cutting.whole_words))
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(f"GGUF: tokenizer.ggml.merges do not fit the tokens: {error}") from error
    backend.pre_tokenizer = cutting.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    if cutting.nfc:
        backend.normalizer = cutting.normalizer()
    backend.add_tokens(_added(vocabulary, PieceType.USER_DEFINED))
    backend.add_special_tokens([added for kind in _SPECIAL for added in _added(vocabulary, kind)])
    bos_id = vocabulary.token_id("bos")
    return HFTokenizer(
        backend,
        bos=None if bos_id is None else vocabulary.tokens[bos_id],
        eos=[vocabulary.tokens[token_id] for token_id in vocabulary.ids("eos", "eot", "eom")],
        adds_bos=bool(vocabulary.get("add_bos_token", cutting.adds_bos)),
        unused_ids=vocabulary.of_type(PieceType.UNUSED),
    )


def _added(vocabulary: _Vocabulary, kind: PieceType) -> list[AddedToken]:
    special = kind in _SPECIAL
    return [
        AddedToken(vocabulary.tokens[token_id], normalized=False, special=special)
        for token_id in vocabulary.of_type(kind)
    ]


def _sentencepiece(vocabulary: _Vocabulary) -> SentencePieceTokenizer:
    """Rebuild the SentencePiece model; its BPE merges by score."""
    ids = {name: its for name, key in _ID_KEYS.items() if (its := vocabulary.token_id(key)) is not None}
    types = _one_unknown(vocabulary, ids)
    proto = spm_proto.bpe_model(
        _spelled(vocabulary, types),
        vocabulary.scores,
        types,
        ids=ids,
        add_dummy_prefix=bool(vocabulary.get("add_space_prefix", True)),
        remove_extra_whitespaces=bool(vocabulary.get("remove_extra_whitespaces", False)),
    )
    return SentencePieceTokenizer(
        proto,
        special_tokens=vocabulary.special,
        bos_id=vocabulary.token_id("bos"),
        eos_ids=vocabulary.ids("eos", "eot", "eom"),
        adds_bos=bool(vocabulary.get("add_bos_token", True)),
    )


_ID_KEYS = {"unk": "unknown", "bos": "bos", "eos": "eos", "pad": "padding"}


def _one_unknown(vocabulary: _Vocabulary, ids: dict[str, int]) -> list[int]:
    """Token types with exactly one unknown token, which SentencePiece insists on. ids gains "unk" if it lacks it.

    Converters mark <unk> as control or unknown, and some mark several.
    """
    types = list(vocabulary.types)
    marked = vocabulary.of_type(PieceType.UNKNOWN)
    unknown = ids.setdefault("unk", marked[0] if marked else 0)
    for token_id in marked:
        types[token_id] = int(PieceType.CONTROL)
    types[unknown] = int(PieceType.UNKNOWN)
    num_bytes = types.count(PieceType.BYTE)
    if num_bytes not in (0, _BYTE_PIECES):
        raise TokenizerError(f"GGUF: {num_bytes} byte tokens; a SentencePiece vocabulary has {_BYTE_PIECES} or none")
    return types


def _spelled(vocabulary: _Vocabulary, types: list[int]) -> list[str]:
    """Tokens as SentencePiece spells them: spaces of hand-made tokens escaped, doubled and empty ones made unique."""
    tokens = list(vocabulary.tokens)
    for token_id in vocabulary.of_type(PieceType.USER_DEFINED):
        tokens[token_id] = tokens[token_id].replace(" ", SPACE)
    if "" in tokens or len(set(tokens)) < len(tokens):
        _make_unique(tokens, types)
    return tokens


def _make_unique(tokens: list[str], types: list[int]) -> None:
    """Empty tokens, and all but the first of equal ones, become unused ones of a name of their own."""
    seen = {""}
    for token_id, token in enumerate(tokens):
        if token in seen:
            tokens[token_id], types[token_id] = f"<unused token {token_id}>", int(PieceType.UNUSED)
        seen.add(token)
