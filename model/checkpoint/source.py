"""Opening a checkpoint, whatever its format, behind one face. No torch: the API process reads metadata through it too.

Knows which reader takes which path; the readers (`hf`, `gguf`) know the formats.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from model.checkpoint.gguf import GGUFCheckpoint
from model.checkpoint.hf import PICKLED, HFCheckpoint
from model.checkpoint.stored import Stored
from model.errors import CheckpointError
from model.families.registry import to_model_config


class Checkpoint(Protocol):
    """A model on disk. Everything is spelled as Hugging Face spells it, whatever the file format."""

    @property
    def format(self) -> Literal["gguf", "hf"]: ...

    @property
    def path(self) -> Path: ...

    @property
    def config(self) -> dict[str, Any]:
        """In the shape of Hugging Face's config.json (model_type, hidden_size, rope_theta, layer_types ...)."""
        ...

    @property
    def generation_config(self) -> dict[str, Any]:
        """In the shape of generation_config.json; {} when the checkpoint has none."""
        ...

    @property
    def chat_template(self) -> str | None:
        """Jinja source, the one named "default" where there are several."""
        ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends an answer, as far as the checkpoint says."""
        ...

    @property
    def tokenizer_files(self) -> Mapping[str, Path]:
        """The tokenizer's files by name ("tokenizer.json", "tokenizer.model" ...); {} for GGUF."""
        ...

    @property
    def tokenizer_config(self) -> dict[str, Any]:
        """tokenizer_config.json (with special_tokens_map.json's entries where it lacks them); {} for GGUF."""
        ...

    @property
    def tokenizer_metadata(self) -> Mapping[str, Any]:
        """GGUF's `tokenizer.*` entries by full key, long lists (tokens, scores, merges) included; {} for hf. Lazy."""
        ...

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Hugging Face names ("model.layers.0.self_attn.q_proj.weight"), in file order."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor without reading it."""
        ...

    def stored_type(self, name: str) -> str:
        """What a tensor is stored as, as `model.checkpoint.stored` spells it."""
        ...

    def stored_bytes(self, name: str) -> int:
        """How many bytes a tensor takes in the file."""
        ...

    def stored(self, name: str) -> Stored:
        """A tensor's bytes as a view of a memory map, packed as they are, rows in Hugging Face's order."""
        ...

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        """A tensor's values as float32 (float64 where that is stored)."""
        ...

    def digest(self) -> str:
        """A fingerprint, 64 hex digits: SHA-256 of every header, every size and one page of every tensor, and of all
        that is no weight and changes an answer: tokenizer, chat template, generation_config.

        It tells checkpoints apart and survives copying; it does not prove that the weights are intact
        (a full hash does that once, at download: `server.catalogue`). Costs milliseconds.
        """
        ...


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a `.gguf` file or a Hugging Face directory whose model is one we can serve.

    Raises CheckpointError with one clear line; its kinds UnknownArchitecture and UnsupportedConfig too.
    """
    checkpoint = _open(path)
    layers = checkpoint.config.get("num_hidden_layers")
    if isinstance(layers, int) and layers > len(checkpoint.tensor_names):  # before anyone makes a list of that length
        raise CheckpointError(f"{path}: {layers} layers stated, but only {len(checkpoint.tensor_names)} tensors stored")
    to_model_config(checkpoint.config)
    return checkpoint


def _open(path: Path) -> Checkpoint:
    if not path.exists():
        raise CheckpointError(f"{path}: no such file or directory")
    if path.is_dir():
        return HFCheckpoint(path)
    if path.suffix in PICKLED:
        raise CheckpointError(
            f"{path}: pickled weights can run code when loaded and are refused; use safetensors or GGUF"
        )
    if path.suffix == ".safetensors":
        raise CheckpointError(
            f"{path}: name the directory that holds config.json and the tokenizer, not the weights file"
        )
    if not path.is_file():  # opening a pipe would wait for someone to write
        raise CheckpointError(f"{path}: neither a file nor a directory")
    return GGUFCheckpoint(path)
