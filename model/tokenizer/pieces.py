"""From a token as a vocabulary spells it to the bytes it stands for. Knows spellings; knows no vocabulary."""

import re
from collections.abc import Callable, Mapping
from typing import Final

SPACE: Final = "▁"  # U+2581, how SentencePiece spells a space
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE's 256 characters: printable Latin-1 stands for itself, the rest is moved up to U+0100 and on.

    GPT-2's alphabet, whose order of the moved bytes is their numeric order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(moved)}


BYTES_BY_CHARACTER: Final[Mapping[str, int]] = _byte_alphabet()


def byte_level(token: str) -> bytes:
    """A byte-level BPE token. Characters outside the alphabet stand for themselves (hand-added vocabulary)."""
    try:
        return bytes([BYTES_BY_CHARACTER[character] for character in token])
    except KeyError:
        return token.encode("utf-8")


def metaspace(token: str) -> bytes:
    """A SentencePiece token without byte fallback: U+2581 is a space."""
    return token.replace(SPACE, " ").encode("utf-8")


def metaspace_with_bytes(token: str) -> bytes:
    """A SentencePiece token; <0x41> is the byte 0x41."""
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else metaspace(token)


def plain(token: str) -> bytes:
    """A token that is spelled as the text it stands for."""
    return token.encode("utf-8")


Spelling = Callable[[str], bytes]
