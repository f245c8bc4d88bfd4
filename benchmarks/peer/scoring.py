"""Perplexity as llama-perplexity counts it, for anything that gives logits.

The whole text is encoded once, with BOS if the model's prompts begin with it, and cut into windows of n tokens; what is
left over is dropped. Each window is run alone, its first token replaced by BOS where the model adds one. Scored are the
predictions at positions n/2 to n-2, that is of tokens n/2+1 to n-1: n/2-1 a window.
V vocabulary.
"""

import lzma
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

TEXT = Path(__file__).resolve().parent.parent / "texts" / "alice.txt.xz"
Logits = Callable[[Sequence[int], int], Tensor]  # (tokens, wanted) -> (wanted, V): those of the last positions


class TooShort(ValueError):
    """The text has fewer than two windows; the message has the numbers."""


@dataclass(frozen=True, slots=True)
class Score:
    """Perplexity, its standard error, and over how many predictions."""

    perplexity: float
    error: float
    count: int


def read_text(path: Path = TEXT) -> str:
    """A text file, also one packed by xz."""
    packed = path.read_bytes()
    return (lzma.decompress(packed) if path.suffix == ".xz" else packed).decode("utf-8")


def windows(tokens: Sequence[int], *, size: int, bos: int | None, most: int | None = None) -> Iterator[list[int]]:
    """The text's windows, at most `most`. bos: put in place of each window's first token, unless None.

    Raises TooShort below two windows, as llama-perplexity does.
    """
    if len(tokens) < 2 * size:
        raise TooShort(f"the text has {len(tokens)} tokens; at least {2 * size} are needed")
    count = len(tokens) // size
    for i in range(count if most is None else min(count, most)):
        window = list(tokens[i * size : (i + 1) * size])
        yield window if bos is None else [bos, *window[1:]]


def losses(window: Sequence[int], logits: Logits) -> Tensor:
    """Negative log-probabilities (n/2-1,) of the scored tokens of one window of n."""
    first = len(window) // 2
    rows = logits(window, len(window) - first)[:-1].float()  # the last one predicts what the window doesn't have
    targets = torch.tensor(window[first + 1 :])
    chosen = rows.gather(1, targets[:, None])[:, 0]
    return (torch.logsumexp(rows, dim=1) - chosen).double()


def score(all_losses: Sequence[Tensor]) -> Score:
    """Of the losses of all windows."""
    values = torch.cat(list(all_losses))
    mean = values.mean().item()
    spread = math.sqrt(max((values.square().mean().item() - mean * mean), 0.0) / max(len(values) - 1, 1))
    return Score(math.exp(mean), spread * math.exp(mean), len(values))
