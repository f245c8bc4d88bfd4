"""SentencePiece's ModelProto, written by hand: a vocabulary without its file becomes a model that SentencePiece loads.

Field numbers and types are those of sentencepiece_model.proto. Protocol buffers let a later field override an earlier
one of the same number, which is how tokens are retyped here without parsing them. Knows bytes; knows no tokenizer.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from model.tokenizer.base import TokenizerError
from model.tokenizer.pieces import SPACE


class PieceType(IntEnum):
    """ModelProto.SentencePiece.Type; GGUF's token types are the same numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of ModelProto
_TEXT, _SCORE, _TYPE = 1, 2, 3  # fields of SentencePiece
_BPE = 2  # TrainerSpec.model_type


def _varint(number: int) -> bytes:
    """A non-negative number, 7 bits a byte, lowest first."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _block(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(body)) + body


# Appended to a proto, merges into its normalizer and switches the space before the text off.
NO_DUMMY_PREFIX = _block(_NORMALIZER, _number(3, 0))


def bpe_model(
    tokens: Sequence[str],
    scores: Sequence[float],
    types: Sequence[int],
    *,
    ids: Mapping[str, int],
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
) -> bytes:
    """A BPE model that merges by score. Exactly one of types must be UNKNOWN.

    ids: "unk", "bos", "eos", "pad" where they exist.
    """
    trainer = _number(3, _BPE) + _number(35, PieceType.BYTE in types)
    for field, name in ((40, "unk"), (41, "bos"), (42, "eos"), (43, "pad")):
        trainer += _number(field, ids.get(name, -1))
    normalizer = _block(1, b"identity") + _number(3, add_dummy_prefix) + _number(4, remove_extra_whitespaces)
    head = _block(_TRAINER, trainer) + _block(_NORMALIZER, normalizer + _number(5, 1))
    return head + b"".join(_vocabulary(tokens, scores, types))


def _vocabulary(tokens: Iterable[str], scores: Iterable[float], types: Iterable[int]) -> Iterator[bytes]:
    """Every piece as a field of ModelProto. A quarter of a million of them, so headers are made once per length."""
    heads: dict[int, bytes] = {}
    tails = {kind: _number(_TYPE, kind) for kind in set(types)}
    pack = struct.Struct("<Bf").pack
    score_tag = _SCORE << 3 | _FIXED32
    for token, score, kind in zip(tokens, scores, types, strict=True):
        text = token.encode("utf-8")
        head = heads.get(len(text)) or heads.setdefault(len(text), _head(len(text)))
        yield head + text + pack(score_tag, score) + tails[kind]


def _head(text_length: int) -> bytes:
    """What comes before a piece's text: its field's tag and length, the text's tag and length."""
    text_head = _varint(_TEXT << 3 | _BYTES) + _varint(text_length)
    score_and_type = 5 + 2
    return _varint(_PIECES << 3 | _BYTES) + _varint(len(text_head) + text_length + score_and_type) + text_head


def with_tokens(proto: bytes, size: int, tokens: Mapping[int, tuple[str, PieceType]]) -> bytes:
    """The model with some of its `size` pieces retyped and others appended. Gaps are filled with unused pieces."""
    if not tokens:
        return proto
    retyped = {token_id: kind for token_id, (_, kind) in tokens.items() if token_id < size}
    data = _retyped(proto, retyped) if retyped else proto
    for token_id in range(size, max(tokens) + 1):
        text, kind = tokens.get(token_id, (f"<gap {token_id}>", PieceType.UNUSED))
        if kind is PieceType.USER_DEFINED:
            text = text.replace(" ", SPACE)  # it is matched in text whose spaces are escaped
        data += b"".join(_vocabulary([text], [0.0], [kind]))
    return data


def _retyped(proto: bytes, types: Mapping[int, PieceType]) -> bytes:
    parts, piece_id = [], 0
    for field, whole, body in _fields(proto):
        if field == _PIECES:
            if piece_id in types:
                whole = _block(_PIECES, body + _number(_TYPE, types[piece_id]))
            piece_id += 1
        parts.append(whole)
    return b"".join(parts)


def _fields(proto: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each top-level field: its number, all its bytes, and its body (empty for plain numbers)."""
    offset = 0
    while offset < len(proto):
        start = offset
        key, offset = _read_varint(proto, offset)
        body_start, kind = offset, key & 7
        if kind == _VARINT:
            _, offset = _read_varint(proto, offset)
        elif kind == _BYTES:
            length, body_start = _read_varint(proto, offset)
            offset = body_start + length
        elif kind in (_FIXED32, _FIXED64):
            offset += 4 if kind == _FIXED32 else 8
        else:
            raise TokenizerError(f"not a SentencePiece model: field type {kind} at byte {start}")
        yield key >> 3, proto[start:offset], proto[body_start:offset] if kind == _BYTES else b""


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """The number at offset, and the offset after it."""
    number = shift = 0
    while offset < len(data):
        byte = data[offset]
        number |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return number, offset
    raise TokenizerError("not a SentencePiece model: it ends in the middle of a number")
