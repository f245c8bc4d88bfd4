"""Native weights against exponentials in double precision; the same bits anyhow."""

import numpy as np
import pytest
import torch

from model.filters import RowWorkspace
from model.native_workspace import NativeWorkspace
from model.ranking import TILE
from tests.helpers.native_teams import native_team, other_isas

CPU = torch.device("cpu")


def weights(logits: torch.Tensor, temperature: float, *, threads: int = 2, isa: str | None = None) -> np.ndarray:
    work = NativeWorkspace(len(logits), CPU, native_team(threads, isa))
    work.shift(logits, float(logits.max()))
    return work.weigh(temperature).copy()


def some_logits(vocab: int) -> torch.Tensor:
    return 5 * torch.randn(vocab, generator=torch.Generator().manual_seed(vocab))


@pytest.mark.parametrize("vocab", [1, 7, TILE, TILE + 3, 5000, 20_000])
@pytest.mark.parametrize("temperature", [1e-45, 0.2, 1.0, 7.0])
def test_weights_are_exponentials_and_the_padding_weighs_nothing(vocab: int, temperature: float) -> None:
    logits = some_logits(vocab)
    logits[vocab // 2] = -torch.inf if vocab > 1 else 1.0
    found = weights(logits, temperature)
    assert len(found) % TILE == 0
    assert not found[vocab:].any()
    shifted = (logits - logits.max()).double().numpy() / max(temperature, 1.1754944e-38)
    expected = np.exp(np.maximum(shifted, -700))
    assert found[:vocab] == pytest.approx(np.where(shifted < -87, 0, expected), rel=1e-5, abs=2e-38)
    assert found.max() == 1.0


@pytest.mark.parametrize("isa", ["plain", *other_isas()])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_instruction_set_and_number_of_threads_gives_the_same_bits(isa: str, threads: int) -> None:
    for vocab in (333, 9000, 20_000):
        expected = weights(some_logits(vocab), 0.7, threads=1, isa="plain")
        assert weights(some_logits(vocab), 0.7, threads=threads, isa=isa).tobytes() == expected.tobytes()


def test_torchs_weights_are_nearly_the_same() -> None:
    logits, work = some_logits(5000), RowWorkspace(5000, CPU)
    work.shift(logits, float(logits.max()))
    assert weights(logits, 0.8) == pytest.approx(work.weigh(0.8), rel=1e-5, abs=2e-38)
