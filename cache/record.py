"""One block's keys and values as bytes that can leave the machine's memory: how they are named, laid out and checked.

A name is a keyed hash of everything before it: the root (model, format, namespace, salt), then block after block of
tokens. Names only find a file; what it holds is taken for a prefix by the exact root and all exact tokens in it.

    header (magic, lengths) | root | tokens of the whole prefix, 4 bytes each | keys and values | checksum

The checksum is keyed too, so that a file that somebody else wrote is none of ours. Knows no directory, no tensors.
"""

import hashlib
import json
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

MAGIC = b"KVELLBL1"
HEADER = struct.Struct("<8sIIQ")  # magic, bytes of the root, tokens, bytes of keys and values
CHECK_BYTES = 32
KEY_BYTES = 32


class BadRecord(ValueError):
    """A file that is not the block it should be. The message says why, without tokens."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a record must hold to be taken: this root, exactly these tokens from the start, so many bytes."""

    root: bytes
    tokens: Sequence[int]
    num_bytes: int


def root_of(form: Sequence[str], namespace: str, salt: str) -> bytes:
    """Whose prefixes, of which model, in which form: what differs in any of it never meets."""
    return json.dumps([list(form), namespace, salt]).encode()


class Names:
    """The names of one sequence's blocks, worked out as far as they are asked for. tokens only grow at the end."""

    def __init__(self, key: bytes, root: bytes, tokens: Sequence[int], block_size: int) -> None:
        self.root = root
        self.tokens = tokens
        self._key = key
        self._block_size = block_size
        self._start = hashlib.blake2b(root, key=key, digest_size=32).digest()
        self._links: list[bytes] = []

    def __getitem__(self, index: int) -> str:
        """64 hex digits for the block of tokens index * block_size and on; it must be full."""
        while len(self._links) <= index:
            here = len(self._links)
            block = self.tokens[here * self._block_size : (here + 1) * self._block_size]
            assert len(block) == self._block_size, f"block {here} has {len(block)} of {self._block_size} tokens"
            link = (self._links[-1] if self._links else self._start) + packed(block)
            self._links.append(hashlib.blake2b(link, key=self._key, digest_size=32).digest())
        return self._links[index].hex()

    def prefix(self, index: int) -> Sequence[int]:
        """All tokens up to the end of block index."""
        return self.tokens[: (index + 1) * self._block_size]


def packed(tokens: Sequence[int]) -> bytes:
    """4 bytes a token."""
    return array("I", tokens).tobytes()


def encode(key: bytes, root: bytes, tokens: Sequence[int], payload: memoryview) -> tuple[bytes, memoryview, bytes]:
    """A record in three parts, to be written one after the other; the payload is not copied."""
    front = HEADER.pack(MAGIC, len(root), len(tokens), payload.nbytes) + root + packed(tokens)
    return front, payload, _checksum(key, front, payload)


def decode(key: bytes, record: bytes, wanted: Wanted) -> memoryview:
    """The keys and values in a record, after every check. Raises BadRecord."""
    if len(record) < HEADER.size + CHECK_BYTES:
        raise BadRecord(f"{len(record)} bytes are too short for a block")
    magic, num_root, num_tokens, num_bytes = HEADER.unpack_from(record)
    if magic != MAGIC:
        raise BadRecord("not a block of this version")
    payload_at = HEADER.size + num_root + 4 * num_tokens
    if len(record) != payload_at + num_bytes + CHECK_BYTES:
        raise BadRecord(f"{len(record)} bytes where {payload_at + num_bytes + CHECK_BYTES} are announced")
    view = memoryview(record)
    front, payload = view[:payload_at], view[payload_at:-CHECK_BYTES]
    if _checksum(key, front, payload) != view[-CHECK_BYTES:]:
        raise BadRecord("the checksum differs")
    if front[HEADER.size : HEADER.size + num_root] != wanted.root:
        raise BadRecord("it belongs to another model, format or owner")
    if front[HEADER.size + num_root :] != packed(wanted.tokens):
        raise BadRecord("it holds other tokens")
    if num_bytes != wanted.num_bytes:
        raise BadRecord(f"{num_bytes} bytes of keys and values where {wanted.num_bytes} are needed")
    return payload


def _checksum(key: bytes, front: bytes | memoryview, payload: memoryview) -> bytes:
    check = hashlib.blake2b(front, key=key, digest_size=CHECK_BYTES)
    check.update(payload)
    return check.digest()
