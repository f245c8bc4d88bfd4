"""A GGUF without its vocabulary, byte for byte the same otherwise.

transformers reads GGUF metadata one vocabulary entry at a time, which takes longer than all the tests that it serves;
its model needs only the vocabulary's size. Written from the GGUF specification, on purpose not with kvell's own reader.
"""

import struct
from pathlib import Path

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY, _UINT32 = 8, 9, 4
_ALIGNMENT = 32
_DROPPED = ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.merges")


def write_slim(source: Path, target: Path) -> Path:
    """Copy a GGUF v3 file without its token lists; a key `<architecture>.vocab_size` says how many there were."""
    data = source.read_bytes()
    magic, version, num_tensors, num_keys = struct.unpack_from("<4sIQQ", data)
    assert (magic, version) == (b"GGUF", 3), (magic, version)
    at, kept, architecture, vocab_size = 24, [], b"", 0
    for _ in range(num_keys):
        start = at
        key, at = _string(data, at)
        kind = struct.unpack_from("<I", data, at)[0]
        value_at = at + 4
        at = _skip(data, value_at, kind)
        if key == b"general.architecture":
            architecture = _string(data, value_at)[0]
        if key == b"tokenizer.ggml.tokens":
            vocab_size = struct.unpack_from("<Q", data, value_at + 4)[0]
        if key.decode() not in _DROPPED and not key.endswith(b".vocab_size"):
            kept.append(data[start:at])
    key = architecture + b".vocab_size"
    kept.append(struct.pack("<Q", len(key)) + key + struct.pack("<II", _UINT32, vocab_size))
    infos_end = at
    for _ in range(num_tensors):
        _, infos_end = _string(data, infos_end)
        infos_end += 4 + 8 * struct.unpack_from("<I", data, infos_end)[0] + 12
    header = struct.pack("<4sIQQ", magic, version, num_tensors, len(kept)) + b"".join(kept) + data[at:infos_end]
    with target.open("wb") as file:
        file.write(header.ljust(_aligned(len(header)), b"\0"))
        file.write(memoryview(data)[_aligned(infos_end) :])
    return target


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    """A string and where it ends."""
    (length,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + length], at + 8 + length


def _skip(data: bytes, at: int, kind: int) -> int:
    """Where a value ends."""
    if kind == _STRING:
        return _string(data, at)[1]
    if kind != _ARRAY:
        return at + _SIZES[kind]
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner in _SIZES:
        return at + _SIZES[inner] * count
    for _ in range(count):
        at = _skip(data, at, inner)
    return at
