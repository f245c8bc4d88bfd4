"""The header of a GGUF v3 file: metadata and the directory of tensors.

The format is ggml's gguf.md; constants come from its authors' `gguf` package, whose own reader makes a numpy view of
each vocabulary entry and so takes seconds. Here a list's strings are only stepped over until somebody asks for them.
Knows the format; knows no architectures. Anything wrong with the bytes is a CheckpointError.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from gguf.constants import GGUF_DEFAULT_ALIGNMENT, GGUF_MAGIC, GGUF_VERSION, GGMLQuantizationType, GGUFValueType

from model.checkpoint.mapped import MappedFile
from model.checkpoint.stored import BLOCKS, num_bytes
from model.errors import CheckpointError

_SCALARS: Final[Mapping[int, str]] = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.FLOAT64: "<f8",
    GGUFValueType.BOOL: "?",
}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_TYPES = {int(member): member.name for member in GGMLQuantizationType}
_MAX_DIMENSIONS = 4  # ggml's own limit


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: type by name, shape outermost first, byte offset from the start of the file."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """A metadata value that has been stepped over. count is None for a single value."""

    type: int
    offset: int
    count: int | None


class _Cursor:
    """Reads forward through the file's bytes; running past the end is a CheckpointError."""

    def __init__(self, file: MappedFile, offset: int = 0) -> None:
        self.file = file
        self.data = file.map(0, file.size)
        self.offset = offset

    def number(self, layout: struct.Struct) -> int:
        start = self.step(layout.size)
        value: int = layout.unpack_from(self.data, start)[0]
        return value

    def text(self) -> str:
        length = self.number(_U64)
        start = self.step(length)
        try:
            return str(self.data[start : start + length], "utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"{self.file.path}: corrupt header: text that is not UTF-8 at byte {start}"
            ) from error

    def step(self, length: int) -> int:
        """Move on by `length` bytes; where we were."""
        start = self.offset
        if length > self.file.size - start:
            raise CheckpointError(f"{self.file.path}: truncated or corrupt: the header runs past the end of the file")
        self.offset = start + length
        return start

    def skip_texts(self, count: int) -> None:
        """Step over `count` strings. The one hot loop: a vocabulary has up to half a million of them."""
        self._check_count(count, smallest=_U64.size)
        data, offset, unpack = self.data, self.offset, _U64.unpack_from
        limit = self.file.size - _U64.size
        for _ in range(count):
            if offset > limit:
                break
            offset += _U64.size + unpack(data, offset)[0]
        self.step(offset - self.offset)

    def skip_scalars(self, kind: int, count: int) -> None:
        size = np.dtype(_SCALARS[kind]).itemsize
        self._check_count(count, smallest=size)
        self.step(count * size)

    def _check_count(self, count: int, *, smallest: int) -> None:
        if count > (self.file.size - self.offset) // smallest:  # absurd counts cost nothing
            raise CheckpointError(f"{self.file.path}: truncated or corrupt: a list of {count} does not fit the file")


class Metadata(Mapping[str, Any]):
    """Key -> value: int, float, bool, str, or a list of these. Values are decoded when first asked for.

    A float32 becomes the float with the shortest decimal spelling that rounds to it, so 1e-05 stays 1e-05.
    """

    def __init__(self, file: MappedFile, entries: Mapping[str, _Entry]) -> None:
        self._file, self._entries = file, entries
        self._decoded: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._decoded:
            self._decoded[key] = self._decode(self._entries[key])
        return self._decoded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _decode(self, entry: _Entry) -> Any:
        cursor = _Cursor(self._file, entry.offset)
        if entry.type == GGUFValueType.STRING:
            return cursor.text() if entry.count is None else [cursor.text() for _ in range(entry.count)]
        layout = np.dtype(_SCALARS[entry.type])
        values = np.frombuffer(cursor.data, layout, 1 if entry.count is None else entry.count, entry.offset)
        if entry.count is not None:
            return values.tolist()
        return float(str(values[0])) if layout.kind == "f" else values[0].item()


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header. data_start is where tensor data begins, in bytes; the header's own bytes lie before it."""

    metadata: Metadata
    tensors: Mapping[str, TensorInfo]
    data_start: int


def read_header(file: MappedFile) -> Header:
    """Parse and check the header. Every tensor lies within the file, overlaps no other and has a type that we read."""
    cursor = _Cursor(file)
    num_tensors, num_entries = _read_preamble(cursor)
    entries: dict[str, _Entry] = {}
    for _ in range(num_entries):
        key = cursor.text()
        if key in entries:
            raise CheckpointError(f"{file.path}: corrupt header: key {key!r} occurs twice")
        entries[key] = _read_entry(cursor, key)
    metadata = Metadata(file, entries)
    if metadata.get("split.count", 1) != 1:
        raise CheckpointError(f"{file.path}: one of {metadata['split.count']} parts of a split GGUF; merge them first")
    infos = [_read_tensor_info(cursor) for _ in range(num_tensors)]
    data_start = _aligned(cursor.offset, _alignment(file, metadata))
    return Header(metadata, _place(file, infos, data_start), data_start)


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    """Magic, version and the two counts."""
    path = cursor.file.path
    if cursor.file.size < 4 or cursor.number(_U32) != GGUF_MAGIC:
        raise CheckpointError(f"{path}: not a GGUF file (it does not begin with the letters GGUF)")
    version = cursor.number(_U32)
    if version != GGUF_VERSION:
        kind = "big-endian" if version & 0xFFFF == 0 else f"version {version}"
        raise CheckpointError(
            f"{path}: GGUF {kind} is not supported; kvell reads version {GGUF_VERSION}, little-endian"
        )
    return cursor.number(_U64), cursor.number(_U64)


def _read_entry(cursor: _Cursor, key: str) -> _Entry:
    kind, count = cursor.number(_U32), None
    if kind == GGUFValueType.ARRAY:
        kind, count = cursor.number(_U32), cursor.number(_U64)
    entry = _Entry(kind, cursor.offset, count)
    if kind == GGUFValueType.STRING:
        cursor.skip_texts(1 if count is None else count)
    elif kind in _SCALARS:
        cursor.skip_scalars(kind, 1 if count is None else count)
    else:
        raise CheckpointError(f"{cursor.file.path}: corrupt header: {key!r} has unknown type {kind}")
    return entry


def _read_tensor_info(cursor: _Cursor) -> TensorInfo:
    """One directory entry; its offset is still relative to the start of the data."""
    path, name = cursor.file.path, cursor.text()
    num_dimensions = cursor.number(_U32)
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise CheckpointError(f"{path}: corrupt header: tensor {name!r} has {num_dimensions} dimensions")
    shape = tuple(cursor.number(_U64) for _ in range(num_dimensions))[::-1]
    type_id, offset = cursor.number(_U32), cursor.number(_U64)
    if type_id not in _TYPES:
        raise CheckpointError(f"{path}: unknown storage type {type_id} of tensor {name!r}")
    type_name = _TYPES[type_id]
    if type_name not in BLOCKS:
        raise CheckpointError(f"{path}: {name!r} is stored as {type_name}; kvell reads {', '.join(BLOCKS)}")
    try:
        return TensorInfo(name, type_name, shape, offset, num_bytes(type_name, shape))
    except ValueError as error:
        raise CheckpointError(f"{path}: tensor {name!r}: {error}") from error


def _alignment(file: MappedFile, metadata: Metadata) -> int:
    alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise CheckpointError(f"{file.path}: corrupt header: general.alignment = {alignment!r} is not a power of two")
    return alignment


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _place(file: MappedFile, infos: list[TensorInfo], data_start: int) -> dict[str, TensorInfo]:
    """Offsets made absolute, and every tensor checked to lie within the file and apart from the others."""
    tensors: dict[str, TensorInfo] = {}
    end_of_last = data_start
    for info in sorted(infos, key=lambda info: info.offset):
        start = data_start + info.offset
        if not info.length or start < end_of_last or info.name in tensors:
            raise CheckpointError(
                f"{file.path}: corrupt header: tensor {info.name!r} is empty, doubled or overlaps another"
            )
        end_of_last = start + info.length
        if end_of_last > file.size:
            raise CheckpointError(
                f"{file.path}: truncated: tensor {info.name!r} ends at byte {end_of_last}, the file at {file.size}"
            )
        tensors[info.name] = TensorInfo(info.name, info.type, info.shape, start, info.length)
    return {info.name: tensors[info.name] for info in infos}
