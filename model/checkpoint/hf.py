"""A Hugging Face directory as a `Checkpoint`: config.json, *.safetensors, the tokenizer's files. No torch.

Knows file names and JSON; knows no architectures.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from model.checkpoint.mapped import add_samples
from model.checkpoint.safetensors_file import SafetensorsFile, open_safetensors
from model.checkpoint.stored import BLOCKS, FLOATS, Stored, decode
from model.errors import CheckpointError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
_SHARD = re.compile(r".+-(\d{5})-of-(\d{5})\.safetensors")


class HFCheckpoint:
    """Opening reads the JSON files and the headers of the weight files."""

    format: Final[Literal["hf"]] = "hf"
    tokenizer_metadata: Final[Mapping[str, Any]] = {}

    def __init__(self, path: Path) -> None:
        self.path = path
        if not any(path.iterdir()):
            raise CheckpointError(f"{path}: the directory is empty")
        if not (path / "config.json").is_file():
            raise CheckpointError(f"{path}: no config.json, so this is no Hugging Face checkpoint")
        self.config: dict[str, Any] = _read_json(path / "config.json")
        self._shards = [open_safetensors(file) for file in _weight_files(path)]
        self._where: dict[str, SafetensorsFile] = {}
        for shard in self._shards:
            for name in shard.tensors:
                if name in self._where:
                    raise CheckpointError(
                        f"{shard.file.path}: tensor {name!r} is in {self._where[name].file.path.name} too"
                    )
                self._where[name] = shard
        _check_index(path, self._where)
        self.generation_config = _read_json(path / "generation_config.json", missing={})
        self.eos_ids = frozenset([*_as_ids(self.generation_config, path), *_as_ids(self.config, path)])
        self.tokenizer_files = {name: path / name for name in TOKENIZER_FILES if (path / name).is_file()}
        special = _read_json(path / "special_tokens_map.json", missing={})
        self.tokenizer_config = special | _read_json(path / "tokenizer_config.json", missing={})
        self.chat_template = _chat_template(path, self.tokenizer_config)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        return tuple(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._where[name].tensors[name].shape

    def stored_type(self, name: str) -> str:
        return self._where[name].tensors[name].type

    def stored_bytes(self, name: str) -> int:
        return self._where[name].tensors[name].length

    def stored(self, name: str) -> Stored:
        shard = self._where[name]
        span = shard.tensors[name]
        if span.type not in FLOATS or not span.length:
            what = f"stored as {span.type}" if span.length else "empty"
            raise CheckpointError(f"{shard.file.path}: {name!r} is {what}; kvell reads {', '.join(FLOATS)}")
        row = (span.shape[-1] if span.shape else 1) * BLOCKS[span.type][1]
        data = shard.file.view(span.offset, span.length).reshape(*span.shape[:-1], row)
        return Stored(span.type, span.shape, data)

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        return decode(self.stored(name))

    def digest(self) -> str:
        sha = hashlib.sha256(b"hf\n" + (self.path / "config.json").read_bytes())
        for shard in self._shards:
            sha.update(f"{shard.file.size} {len(shard.header)}\n".encode() + shard.header)
            add_samples(sha, shard.file, [(span.offset, span.length) for span in shard.tensors.values()])
        for name, path in self.tokenizer_files.items():
            text = path.read_bytes()
            sha.update(f"{name} {len(text)}\n".encode() + text)
        # read from one of several places, so as they count
        sha.update(json.dumps([self.generation_config, self.chat_template], sort_keys=True).encode())
        return sha.hexdigest()


def _read_json(path: Path, *, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """A JSON object from a file. missing: what an absent file counts as; None makes it an error."""
    if missing is not None and not path.is_file():
        return missing
    try:
        value = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8 (byte {error.start})") from error


def _weight_files(path: Path) -> list[Path]:
    """The safetensors files that make up the model: the index's, else the only one, else a full set of shards."""
    if (path / INDEX).is_file():
        return _indexed_files(path)
    if (path / SINGLE).is_file():
        return [path / SINGLE]
    found = sorted(path.glob("*.safetensors"))
    shards = [match for file in found if (match := _SHARD.fullmatch(file.name))]
    if len(found) == 1 and not shards:
        return found
    if shards and len(shards) == len(found) == int(shards[0][2]):
        return found
    if found:
        raise CheckpointError(f"{path}: {len(found)} safetensors files but no {INDEX} that says which belong together")
    pickled = sorted(file.name for file in path.iterdir() if file.suffix in PICKLED)
    if pickled:
        raise CheckpointError(
            f"{path}: only pickled weights ({pickled[0]}), which can run code when loaded and are refused; "
            "use a safetensors or GGUF version of the model"
        )
    raise CheckpointError(f"{path}: no *.safetensors files")


def _weight_map(path: Path) -> dict[str, str]:
    """Tensor -> file name, as the index says."""
    names = _read_json(path / INDEX).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()) or not names:
        raise CheckpointError(f"{path / INDEX}: no weight_map from tensor names to file names")
    return names


def _indexed_files(path: Path) -> list[Path]:
    files = sorted(set(_weight_map(path).values()))
    for name in files:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{path / INDEX}: {name!r} is not the name of a safetensors file beside it")
        if not (path / name).is_file():
            raise CheckpointError(f"{path / INDEX} names {name}, which does not exist")
    return [path / name for name in files]


def _check_index(path: Path, where: Mapping[str, SafetensorsFile]) -> None:
    """Every tensor that the index names must be in the file that it names."""
    if not (path / INDEX).is_file():
        return
    for name, file in _weight_map(path).items():
        if name not in where or where[name].file.path.name != file:
            raise CheckpointError(f"{path / INDEX}: tensor {name!r} is not in {file}")


def _chat_template(path: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else chat_template.json, else tokenizer_config.json's (one, or the default of several)."""
    if (path / "chat_template.jinja").is_file():
        return _read_text(path / "chat_template.jinja")
    template = _read_json(path / "chat_template.json", missing={}).get("chat_template")
    template = template or tokenizer_config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise CheckpointError(f"{path}: chat_template is neither text nor a list of named templates")
    return template


def _as_ids(config: Mapping[str, Any], path: Path) -> list[int]:
    """eos_token_id of a config: an id, a list of ids, or nothing."""
    value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise CheckpointError(f"{path}: eos_token_id = {value!r} is neither an id nor a list of ids")
    return ids
