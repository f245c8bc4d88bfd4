"""The native head: best entries exactly, log_sum closely, whole rows as the product has them, the same bits anyhow."""

import math
from collections.abc import Sequence
from random import Random

import pytest
import torch
from torch import Tensor

from model.batch import MOST_BEST, Wish
from model.filters import RowWorkspace
from model.quant.packed import PackedWeight
from model.scores import Scores, Summary, summarise
from tests.helpers.native_head import score, score_logits
from tests.helpers.native_teams import native_team, other_isas
from tests.helpers.packed import bits, random_stored

TILE = 512
VOCABULARIES = [1, 2, 7, 31, 33, TILE - 1, TILE, TILE + 1, 3 * TILE, 2000]
ISAS = ["plain", *other_isas()]


def some_logits(vocab: int) -> Tensor:
    """Spread, coarse ones with many ties, all equal, ascending, descending, huge, tiny, both zeros. (8, V)"""
    spread = 3 * torch.randn(vocab, generator=torch.Generator().manual_seed(vocab))
    ids = torch.arange(vocab, dtype=torch.float32)
    zeros = torch.where(ids % 2 == 0, 0.0, -0.0)
    rows = [spread, spread.round(), torch.full((vocab,), -2.5), ids, -ids, spread * 1e37, spread * 1e-42, zeros]
    return torch.stack(rows).clamp(-3e38, 3e38)


def sorted_head(values: Sequence[float], count: int) -> list[int]:
    possible = [token for token in range(len(values)) if values[token] > -math.inf]
    return sorted(possible, key=lambda token: (-values[token], token))[:count]


def of(scores: Scores, row: int) -> tuple[object, ...]:
    """All that is known of a row, to the bit."""
    summary, place = scores.summaries[row], scores.places[row]
    assert summary is not None
    its = None if place is None else bits(scores.logits[place]).tolist()
    return summary.ids, [each.hex() for each in summary.logits], summary.log_sum.hex(), its


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vocab", VOCABULARIES)
@pytest.mark.parametrize("count", [1, 2, 20, MOST_BEST])
def test_the_best_are_the_head_of_the_sorted_row_and_the_sum_is_torchs(vocab: int, count: int, isa: str) -> None:
    logits = some_logits(vocab)
    scores = score_logits(logits, [Wish(False, count, True)] * len(logits), native_team(2, isa))
    assert scores.places == [None] * len(logits)
    for row, summary in zip(logits, scores.summaries, strict=True):
        assert summary is not None
        values = row.tolist()
        assert list(summary.ids) == sorted_head(values, count)
        assert list(summary.logits) == [values[token] for token in summary.ids]
        expected = summarise(row, max(values), count, RowWorkspace(vocab, row.device))
        assert expected[:2] == summary[:2]
        assert summary.log_sum == pytest.approx(float(row.double().logsumexp(0)), abs=1e-6, rel=1e-15)
        assert summary.log_sum == pytest.approx(expected.log_sum, abs=2e-6, rel=1e-15)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("place", [0, 5, TILE - 1, TILE, 1002])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.nan])
def test_a_row_with_a_number_that_is_none_or_infinite_shows_it(bad: float, place: int, isa: str) -> None:
    logits = some_logits(1003)[:1]
    logits[0, place] = bad
    for count in (1, 20):
        (summary,) = score_logits(logits, [Wish(True, count, True)], native_team(2, isa)).summaries
        assert summary is not None
        assert not math.isfinite(summary.logits[0])
        assert math.isnan(summary.logits[0]) == math.isnan(bad)
        assert math.isnan(summary.log_sum)


@pytest.mark.parametrize("isa", ISAS)
def test_what_is_impossible_is_left_out(isa: str) -> None:
    logits = torch.full((1, 1300), -math.inf)
    (nothing,) = score_logits(logits, [Wish(False, 3, True)], native_team(2, isa)).summaries
    assert nothing is not None
    assert (nothing.ids, nothing.logits) == ((), ())
    assert math.isnan(nothing.log_sum)
    logits[0, [40, 1299]] = torch.tensor([1.0, 2.0])
    (summary,) = score_logits(logits, [Wish(False, 3, True)], native_team(2, isa)).summaries
    assert summary is not None
    assert (summary.ids, summary.logits) == ((1299, 40), (2.0, 1.0))
    assert summary.log_sum == pytest.approx(math.log(math.exp(1) + math.exp(2)), abs=1e-6)


def random_wishes(rng: Random, count: int) -> list[Wish]:
    return [Wish(rng.random() < 0.3, rng.choice([1, 1, 2, 5, 20, MOST_BEST]), rng.random() < 0.5) for _ in range(count)]


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_and_number_of_threads_gives_the_same_bits(isa: str) -> None:
    logits = some_logits(20_000)  # so many tiles that the order in which their sums are added shows
    wishes = [Wish(wish.whole, wish.num_best, True) for wish in random_wishes(Random(1), len(logits))]
    expected = score_logits(logits, wishes, native_team(1, "plain"))
    for threads in (1, 2, 3):
        scores = score_logits(logits, wishes, native_team(threads, isa))
        assert [of(scores, row) for row in range(len(logits))] == [of(expected, row) for row in range(len(logits))]


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "BF16", "F32", "Q6_K"])
@pytest.mark.parametrize("isa", ISAS)
def test_company_and_its_wishes_change_no_bit_and_whole_rows_are_the_product(kind: str, isa: str) -> None:
    team = native_team(2, isa)
    weight = PackedWeight.stacked([random_stored(kind, 1100, 256)], team)
    x = torch.randn(70, 256, generator=torch.Generator().manual_seed(3))
    product = weight.matmul(x)
    rng = Random(7)
    for count in (2, 5, 17, 33, 70):
        wishes = random_wishes(rng, count)
        together = score(weight, x[:count], wishes)
        for row in rng.sample(range(count), min(count, 9)):
            assert of(score(weight, x[row : row + 1], [wishes[row]]), 0) == of(together, row)
        whole = [row for row, wish in enumerate(wishes) if wish.whole]
        assert torch.equal(bits(together.logits), bits(product[whole]))


def test_the_way_a_row_goes_changes_no_bit_of_its_summary() -> None:
    weight = PackedWeight.stacked([random_stored("Q4_1", 1100, 256)], native_team(2))
    x = torch.randn(9, 256, generator=torch.Generator().manual_seed(4))
    most = [score(weight, x, [Wish(True, MOST_BEST, True)] * 9).summaries[row] for row in range(9)]
    for wish in (Wish(False, 1, True), Wish(True, 5, True), Wish(False, 20, True)):
        for summary, full in zip(score(weight, x, [wish] * 9).summaries, most, strict=True):
            assert summary is not None
            assert full is not None
            cut = Summary(full.ids[: wish.num_best], full.logits[: wish.num_best], full.log_sum)
            assert summary == cut


def test_a_wish_for_nothing_but_the_row_has_no_summary() -> None:
    scores = score_logits(some_logits(600), [Wish()] * 8, native_team(2))
    assert scores.summaries == [None] * 8
    assert torch.equal(scores.logits, some_logits(600))
