"""The best of a row is found exactly, whatever its length, and ties go to the lowest id."""

import math

import numpy as np
import pytest
import torch

from model.ranking import SMALLEST_TILE, TILE, best_of_rows, candidates, largest

LENGTHS = [1, 2, TILE - 1, TILE, TILE + 1, 3 * TILE, 1000, 4096]


def rows_of(length: int) -> list[np.ndarray]:
    """Random values, coarse ones with many ties, all equal ones, ascending, descending, few that are finite."""
    random = np.random.default_rng(length)
    spread = random.standard_normal(length)
    few = np.where(random.random(length) < 0.05, spread, -np.inf)
    few[random.integers(length)] = -3.0
    rows = [spread, spread.round(), np.full(length, -2.5), np.arange(length), -np.arange(length), few]
    return [row.astype(np.float32) for row in rows]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_best_is_the_first_of_the_largest(length: int) -> None:
    rows = rows_of(length)
    ids, values = best_of_rows(torch.from_numpy(np.stack(rows)))
    assert ids.tolist() == [row.tolist().index(max(row.tolist())) for row in rows]
    assert values.tolist() == [max(row.tolist()) for row in rows]


def test_a_row_in_disorder_shows_it_and_its_neighbours_do_not() -> None:
    rows = torch.zeros(4, 300)
    rows[0, 290] = math.nan
    rows[1, 5] = math.inf
    rows[2] = -math.inf
    values = best_of_rows(rows)[1].tolist()
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, 0.0]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [1, 2, 20, 300, 5000])
def test_largest_is_the_head_of_the_sorted_row(length: int, count: int) -> None:
    for row in rows_of(length):
        values = row.tolist()
        possible = [token for token in range(length) if math.isfinite(values[token])]
        expected = sorted(possible, key=lambda token: (-values[token], token))[:count]
        assert largest(row, count).tolist() == expected


def test_candidates_are_few_when_values_are_spread() -> None:
    row = np.random.default_rng(0).standard_normal(49152).astype(np.float32)
    for count in (1, 20, 128, 1000):
        found = candidates(row, count, floor=-1e30)
        assert count <= len(found) < 2 * count + 8
        assert found.tolist() == sorted(found.tolist())


def test_candidates_are_still_all_there_when_the_best_share_a_tile() -> None:
    row = np.zeros(49152, np.float32)
    row[1000 : 1000 + SMALLEST_TILE] = 5.0
    assert set(range(1000, 1000 + SMALLEST_TILE)) <= set(candidates(row, SMALLEST_TILE, floor=-1.0).tolist())


def test_the_floor_leaves_out_what_is_below() -> None:
    row = np.array([3.0, 1.0, 2.0, -np.inf], np.float32)
    assert candidates(row, 4, floor=2.0).tolist() == [0, 2]
