"""Changes to logits before anything is drawn: penalties for repetition, logit_bias, and bans.

R rows, V vocabulary, E changed entries. In this order:
repetition penalty r   over prompt and output: l / r where l > 0, else l * r (Keskar et al., "CTRL", 2019, section 4.1)
presence, frequency    over the output: l - presence - frequency * times it was generated (OpenAI's API reference)
DRY                    l - penalty (`model.dry`)
logit_bias             l + bias (OpenAI's API reference), after the penalties, so that -100 really bans
bans                   -inf (`model.bans`)
allowed_token_ids      all the others get -inf

Mostly few entries change, so the logits are changed in place and put back afterwards, which saves a copy of R x V. A
NaN or an infinity stays one, so that a broken row is still seen to be broken. Knows no probabilities.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.history import TokenHistory
from model.sampling_params import SamplingParams

LARGEST = torch.finfo(torch.float32).max


def wants_history(params: SamplingParams) -> bool:
    """Whether any penalty needs to know what was said before."""
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


class Edits:
    """The changes that the rows of one step ask for; collected row by row, applied all at once."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._penalties: list[NDArray[np.float64]] = []  # each (4, E): entry, repetition, count, presence + frequency
        self._losses: list[NDArray[np.float64]] = []  # each (2, E): entry, what it loses
        self._biases: list[NDArray[np.float64]] = []  # each (2, E): entry, bias
        self._allowed: list[tuple[int, NDArray[np.int64]]] = []  # row, ids

    def penalise(self, row: int, params: SamplingParams, history: TokenHistory) -> None:
        """Penalties of one row, given what its sequence has said."""
        subtracted = params.presence_penalty * (history.counts > 0) + params.frequency_penalty * history.counts
        divisor = np.full(len(history.ids), params.repetition_penalty)
        self._penalties.append(np.stack([self._entries(row, history.ids), divisor, subtracted]))

    def subtract(self, row: int, ids: NDArray[np.intp], losses: NDArray[np.float64]) -> None:
        """What some logits of one row lose, besides the penalties above. Each id once."""
        if len(ids):
            self._losses.append(np.stack([self._entries(row, ids), losses]))

    def bias(self, row: int, logit_bias: Mapping[int, float], banned: Collection[int]) -> None:
        """logit_bias of one row, and bans."""
        biases = dict(logit_bias) | {token: -np.inf for token in banned if 0 <= token < self._vocab}
        if biases:
            ids = np.fromiter(biases, np.int64, len(biases))
            self._biases.append(
                np.stack([self._entries(row, ids), np.fromiter(biases.values(), np.float64, len(biases))])
            )

    def keep_only(self, row: int, ids: Sequence[int]) -> None:
        """Ban everything else in one row."""
        self._allowed.append((row, np.asarray(ids, np.int64)))

    def _entries(self, row: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Places in the flattened logits; float64 holds them exactly."""
        assert not len(ids) or (ids.min() >= 0 and ids.max() < self._vocab), f"ids up to {ids.max()} of {self._vocab}"
        return (row * self._vocab + ids).astype(np.float64)

    @contextmanager
    def applied(self, logits: Tensor) -> Iterator[None]:
        """Within the context the logits (R, V), float32 and contiguous, are changed; after it they are as before."""
        flat = logits.view(-1)
        undo: list[tuple[Tensor | slice, Tensor]] = []
        try:
            stages = ((self._penalties, _penalised), (self._losses, _lowered), (self._biases, _biased))
            for columns, change in stages:
                if columns:
                    entry, *values = torch.from_numpy(np.concatenate(columns, axis=1)).to(flat.device)
                    place = entry.long()
                    before = flat[place]
                    undo.append((place, before))
                    flat[place] = change(before, *values)
            for row, ids in self._allowed:
                whole = slice(row * self._vocab, (row + 1) * self._vocab)
                before = flat[whole].clone()
                undo.append((whole, before))
                flat[whole] = _without_others(before, torch.from_numpy(ids).to(flat.device))
            yield
        finally:
            for where, before in reversed(undo):
                flat[where] = before


def _penalised(logits: Tensor, repetition: Tensor, subtracted: Tensor) -> Tensor:
    """All (E,). In float64, rounded once."""
    wide = logits.double()
    return _narrowed(torch.where(wide > 0, wide / repetition, wide * repetition) - subtracted, logits)


def _lowered(logits: Tensor, losses: Tensor) -> Tensor:
    """All (E,). In float64, rounded once."""
    return _narrowed(logits.double() - losses, logits)


def _biased(logits: Tensor, bias: Tensor) -> Tensor:
    """All (E,). A ban is added, as -inf, and not written over the logit: a NaN stays visible."""
    return torch.where(bias.isinf(), (logits + bias).float(), _narrowed(logits + bias, logits))


def _without_others(logits: Tensor, ids: Tensor) -> Tensor:
    """(V,). As with a ban, -inf is added: a NaN stays visible."""
    kept = logits - torch.inf
    kept[ids] = logits[ids]
    return kept


def _narrowed(wide: Tensor, before: Tensor) -> Tensor:
    """As float32 and finite wherever the logit was finite before."""
    return torch.where(before.isfinite(), wide.clamp(-LARGEST, LARGEST), wide).float()
