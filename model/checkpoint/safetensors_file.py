"""One safetensors file, memory-mapped. The `safetensors` library checks it; here is where each tensor lies.

Format: https://github.com/huggingface/safetensors, 8 bytes of header length, a JSON header, the data.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from model.checkpoint.mapped import MappedFile
from model.errors import CheckpointError

_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Span:
    """Where a tensor lies: the library's name of its type ("BF16" ...), its shape, bytes from the start of the file."""

    type: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """An open file and the directory of its tensors. header is its raw bytes."""

    file: MappedFile
    header: bytes
    tensors: Mapping[str, Span]


def open_safetensors(path: Path) -> SafetensorsFile:
    """Check and open a file. Raises CheckpointError."""
    file = MappedFile(path)
    if file.size < _LENGTH_BYTES:
        raise CheckpointError(f"{path}: truncated: {file.size} bytes are no safetensors file")
    length = int.from_bytes(file.read(0, _LENGTH_BYTES), "little")
    if length > file.size - _LENGTH_BYTES:
        raise CheckpointError(f"{path}: truncated or corrupt: the header runs past the end of the file")
    try:
        with safe_open(path, framework="np"):  # checks header, offsets and the file's length
            pass
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: truncated or corrupt safetensors file ({error})") from error
    header = file.read(_LENGTH_BYTES, length)
    start = _LENGTH_BYTES + length
    entries = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
    spans = {
        name: Span(entry["dtype"], tuple(entry["shape"]), start + begin, end - begin)
        for name, entry in entries.items()
        for begin, end in [entry["data_offsets"]]
    }
    return SafetensorsFile(file, header, dict(sorted(spans.items(), key=lambda item: item[1].offset)))
