"""Compares what a checkpoint holds with what a model needs: every tensor is used exactly once, or named. No torch."""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from model.checkpoint.source import Checkpoint
from model.errors import CheckpointError

_SHOWN = 6
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def check_names(checkpoint: Checkpoint, wanted: Mapping[str, tuple[int, ...]], *, ignore: Iterable[str] = ()) -> None:
    """Raise CheckpointError unless the checkpoint holds exactly the wanted tensors in the wanted shapes.

    ignore: regular expressions (full match) of stored names that carry no weights. A head stored beside the
    embedding that it is tied to is fine when equal.
    """
    patterns = [re.compile(pattern) for pattern in ignore]
    stored = [name for name in checkpoint.tensor_names if not any(p.fullmatch(name) for p in patterns)]
    missing = [name for name in wanted if name not in set(stored)]
    left_over = [name for name in stored if name not in wanted]
    if left_over == [HEAD] and not missing:
        _check_tied_head(checkpoint)
        left_over = []
    problems = [_listed("missing", missing), _listed("left over", left_over)]
    if missing or left_over:
        raise CheckpointError(f"{checkpoint.path}: {'; '.join(filter(None, problems))}")
    for name, shape in wanted.items():
        if checkpoint.shape(name) != shape:
            raise CheckpointError(
                f"{checkpoint.path}: tensor {name!r} has shape {list(checkpoint.shape(name))}, expected {list(shape)}"
            )


def _check_tied_head(checkpoint: Checkpoint) -> None:
    head, embedding = checkpoint.stored(HEAD), checkpoint.stored(EMBEDDING)
    same_bytes = head.type == embedding.type and np.array_equal(head.data, embedding.data)
    if same_bytes or np.array_equal(checkpoint.read(HEAD), checkpoint.read(EMBEDDING)):
        return
    raise CheckpointError(
        f"{checkpoint.path}: the config ties the head to the embedding (tie_word_embeddings), "
        f"but the stored {HEAD!r} differs from {EMBEDDING!r}"
    )


def _listed(what: str, names: list[str]) -> str:
    """ "3 tensors missing: a, b, c", shortened when long; "" when there are none."""
    if not names:
        return ""
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''} {what}: {shown}"
