"""A GGUF file as a `Checkpoint`: Hugging Face's names, values and config out of llama.cpp's.

Learns from `model.families` what conversion to GGUF did (names, the order of q and k rows, gemma's norms); undoes it.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from model.checkpoint import gguf_config
from model.checkpoint.gguf_header import TensorInfo, read_header
from model.checkpoint.mapped import MappedFile, add_samples
from model.checkpoint.stored import Stored, decode
from model.errors import CheckpointError
from model.families.family import Family
from model.families.registry import family_of_gguf

ROPE_FREQS = "rope_freqs.weight"
_LAYER = re.compile(r"blk\.(\d+)\.")


class GGUFCheckpoint:
    """Opening reads the header only; the vocabulary is stepped over until `tokenizer_metadata` is read."""

    format: Final[Literal["gguf"]] = "gguf"
    tokenizer_files: Final[Mapping[str, Path]] = {}
    tokenizer_config: Final[dict[str, Any]] = {}

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = MappedFile(path)
        self._header = read_header(self._file)
        self.metadata: Mapping[str, Any] = self._header.metadata
        self.tokenizer_metadata: Mapping[str, Any] = _Prefixed(self.metadata, "tokenizer.")

    @cached_property
    def config(self) -> dict[str, Any]:
        shapes = {name: info.shape for name, info in self._header.tensors.items()}
        return gguf_config.to_config(self.metadata, shapes, rope_divisors=self._rope_divisors())

    @cached_property
    def generation_config(self) -> dict[str, Any]:
        return gguf_config.to_generation_config(self.metadata)

    @property
    def chat_template(self) -> str | None:
        template = self.metadata.get("tokenizer.chat_template")
        if template is not None and not isinstance(template, str):
            raise CheckpointError(f"{self.path}: tokenizer.chat_template is not text")
        return template

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        return gguf_config.end_ids(self.metadata)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def stored_type(self, name: str) -> str:
        return self._tensors[name].type

    def stored_bytes(self, name: str) -> int:
        return self._tensors[name].length

    def stored(self, name: str) -> Stored:
        info = self._tensors[name]
        stored = self._stored(info)
        heads = self._permuted_heads(name)
        if heads:
            return Stored(stored.type, stored.shape, _first_half_first(stored.data, stored.shape, heads))
        offset = self._family.gguf_norm_offset if name.endswith("norm.weight") else 0.0
        return Stored(stored.type, stored.shape, stored.data, add=-offset)

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        return decode(self.stored(name))

    def digest(self) -> str:
        sha = hashlib.sha256(f"gguf {self._file.size}\n".encode())
        sha.update(self._file.read(0, min(self._header.data_start, self._file.size)))
        add_samples(sha, self._file, [(info.offset, info.length) for info in self._header.tensors.values()])
        return sha.hexdigest()

    @cached_property
    def _family(self) -> Family:
        return family_of_gguf(self.metadata.get("general.architecture", ""))

    @cached_property
    def _tensors(self) -> dict[str, TensorInfo]:
        """By Hugging Face name. A tensor that the family does not know keeps its own name."""
        rename = _renamer(self._family)
        ignored = [re.compile(pattern) for pattern in self._family.gguf_ignore]
        return {
            rename(name): info
            for name, info in self._header.tensors.items()
            if name != ROPE_FREQS and not any(pattern.fullmatch(name) for pattern in ignored)
        }

    @cached_property
    def _permuted(self) -> dict[str, str]:
        """Hugging Face name with {layer} -> role, for tensors whose rows are in rope's interleaved order."""
        return {self._family.tensors[role].hf: role for role in self._family.gguf_permuted}

    def _permuted_heads(self, name: str) -> int | None:
        """How many heads the rows of this tensor are to be un-permuted in; None when they are in order."""
        role = self._permuted.get(re.sub(r"\.\d+\.", ".{layer}.", name, count=1))
        if role is None:
            return None
        key = "num_attention_heads" if role.startswith("q") else "num_key_value_heads"
        heads: int = self.config.get(key) or self.config["num_attention_heads"]
        return heads

    def _stored(self, info: TensorInfo) -> Stored:
        data = self._file.view(info.offset, info.length)
        return Stored(info.type, info.shape, data.reshape(*info.shape[:-1], -1))

    def _rope_divisors(self) -> list[float] | None:
        info = self._header.tensors.get(ROPE_FREQS)
        if info is None:
            return None
        divisors = decode(self._stored(info)).ravel()
        if not np.all(np.isfinite(divisors) & (divisors > 0)):
            raise CheckpointError(f"{self.path}: tensor {ROPE_FREQS!r} holds numbers that can't divide a frequency")
        values: list[float] = divisors.astype(np.float64).tolist()
        return values


class _Prefixed(Mapping[str, Any]):
    """The entries of a mapping whose keys begin with a prefix, as lazy as the mapping itself."""

    def __init__(self, whole: Mapping[str, Any], prefix: str) -> None:
        self._whole = whole
        self._keys = [key for key in whole if key.startswith(prefix)]

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self._whole[key]

    def __iter__(self) -> Any:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _renamer(family: Family) -> Callable[[str], str]:
    """GGUF name -> Hugging Face name; unknown names stay as they are."""
    names = {name.gguf: name.hf for name in family.tensors.values()}

    def rename(name: str) -> str:
        layer = _LAYER.match(name)
        if layer is None:
            return names.get(name, name)
        pattern = "blk.{layer}." + name[layer.end() :]
        return names[pattern].format(layer=int(layer[1])) if pattern in names else name

    return rename


def _first_half_first(data: NDArray[np.uint8], shape: tuple[int, ...], heads: int) -> NDArray[np.uint8]:
    """Undo llama conversion's order of rows, r0 r[D/2] r1 r[D/2+1] ..., per head. data (rows, bytes), packed. A copy.

    Rotation pairs dimension i with i + D/2 here and with its neighbour there. A vector's values count as rows.
    """
    num_rows = shape[0]
    if num_rows % (2 * heads):
        raise CheckpointError(f"GGUF: {num_rows} rows of q or k don't split into {heads} heads of even size")
    pairs = data.reshape(heads, num_rows // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(data.shape)
