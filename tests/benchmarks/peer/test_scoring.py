"""Perplexity by llama-perplexity's protocol, checked by hand and against a plain reference on a tiny model."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.peer.models import open_ours
from benchmarks.peer.scoring import TooShort, losses, read_text, score, windows
from tests.helpers.tiny_model_dir import make_model_dir


def test_windows_follow_each_other_and_what_is_left_over_is_dropped() -> None:
    assert list(windows(range(11), size=4, bos=None)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_bos_takes_the_place_of_each_windows_first_token() -> None:
    """The first token of the second window, 4, is neither seen nor predicted: that is the tool's rule."""
    assert list(windows(range(8), size=4, bos=99)) == [[99, 1, 2, 3], [99, 5, 6, 7]]


def test_the_number_of_windows_can_be_limited() -> None:
    assert len(list(windows(range(40), size=4, bos=None, most=3))) == 3
    assert len(list(windows(range(40), size=4, bos=None, most=99))) == 10


def test_a_text_below_two_windows_is_refused() -> None:
    with pytest.raises(TooShort, match="7 tokens; at least 8"):
        list(windows(range(7), size=4, bos=None))


def test_scored_are_the_predictions_from_the_middle_to_the_last_token() -> None:
    asked: list[tuple[list[int], int]] = []

    def logits(window: Sequence[int], wanted: int) -> Tensor:
        """Row r of the last `wanted` positions: all doubt between two tokens, one of which is the right one."""
        asked.append((list(window), wanted))
        rows = torch.full((wanted, 50), -math.inf)
        following = [*window, 0][len(window) - wanted + 1 :]
        for row, token in zip(rows, following, strict=True):
            row[token] = 0.0
            row[49] = math.log(3)
        return rows

    window = [9, 8, 7, 6, 5, 4, 3, 2]
    found = losses(window, logits)
    assert asked == [(window, 4)]
    assert found.shape == (3,), "tokens 5, 6 and 7 of 0 to 7"
    assert torch.allclose(found, torch.full((3,), math.log(4), dtype=torch.float64), atol=1e-6)
    assert score([found, found]).perplexity == pytest.approx(4, rel=1e-6)


def test_the_error_is_that_of_the_mean() -> None:
    """Losses 1 and 3, twice: mean 2, deviation 1, error 1 / sqrt(3)."""
    found = score([torch.tensor([1.0, 3.0]).double(), torch.tensor([1.0, 3.0]).double()])
    assert found.count == 4
    assert found.perplexity == pytest.approx(math.exp(2))
    assert found.error == pytest.approx(math.exp(2) / math.sqrt(3))


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_a_tiny_model_scores_what_whole_windows_give(tmp_path: Path, backend: str) -> None:
    """Every logit at once, the softmax written out, the sum taken in a loop."""
    ours = open_ours(make_model_dir(tmp_path / "model"), window=32, threads=1, backend=backend)
    tokens = [(5 * i * i + 3) % 250 for i in range(100)]
    expected, count = 0.0, 0
    for begin in (0, 32, 64):
        window = tokens[begin : begin + 32]
        rows = ours.logits(window, 32).double().clone()
        for position in range(16, 31):
            probabilities = rows[position].exp() / rows[position].exp().sum()
            expected -= math.log(probabilities[window[position + 1]].item())
            count += 1
    found = score([losses(window, ours.logits) for window in windows(tokens, size=32, bos=ours.bos)])
    assert found.count == count == 45
    assert found.perplexity == pytest.approx(math.exp(expected / count), rel=1e-4)


def test_a_window_knows_nothing_of_the_one_before(tmp_path: Path) -> None:
    ours = open_ours(make_model_dir(tmp_path / "model"), window=32, threads=1)
    window = list(range(32))
    first = ours.logits(window, 4).clone()
    ours.logits(list(range(100, 132)), 32)
    assert torch.equal(ours.logits(window, 4), first)


def test_the_book_is_there_and_long_enough() -> None:
    text = read_text()
    assert len(text) == 152_089
    assert "Alice was beginning to get very tired of sitting by her sister" in text
