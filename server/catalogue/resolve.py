"""What a user wrote after `kvell serve` -> a local path and the model's id."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from server.catalogue.entries import CATALOGUE
from server.catalogue.errors import ModelUnavailable
from server.catalogue.fetch import cache_dir, fetched
from server.catalogue.hub import PREFIX, hub_snapshot
from server.catalogue.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class Resolved:
    """A model on this machine. model_id is its name in /v1/models unless the user gives it another.

    generation: recommended sampling, where the catalogue knows some; what the checkpoint itself says goes first.
    """

    path: Path
    model_id: str
    generation: Mapping[str, float] = field(default_factory=dict)


def names() -> tuple[str, ...]:
    """The catalogue's names."""
    return tuple(CATALOGUE)


def resolve(
    model: str,
    *,
    accept_terms: bool = False,
    progress: Progress = silent,
    environ: Mapping[str, str] = os.environ,
) -> Resolved:
    """A catalogue name, `hf:owner/name[@revision]`, or the path of a .gguf file or a Hugging Face directory.

    Fetches what is not here yet. A catalogue name wins over a file of that name: write ./name for the file.
    Raises ModelUnavailable with one clear line; what is in the file is `open_checkpoint`'s business.
    """
    if model in CATALOGUE:
        entry = CATALOGUE[model]
        path = fetched(model, entry, cache=cache_dir(environ), accept_terms=accept_terms, progress=progress)
        return Resolved(path, model, entry.generation)
    if model.startswith(PREFIX):
        path, repo = hub_snapshot(model)
        return Resolved(path, repo)
    path = Path(model).expanduser()
    if not path.exists():
        raise ModelUnavailable(
            f"no model {model!r}: there is no such file or directory, and the catalogue has {', '.join(CATALOGUE)}; "
            "models of the hub are written hf:owner/name"
        )
    return Resolved(path, path.stem if path.suffix == ".gguf" else path.resolve().name)
