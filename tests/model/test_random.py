"""The random numbers are Philox's, spread evenly, and a pure function of seed, choice and position."""

import itertools
from collections import Counter

import pytest

from model.random import philox, uniform
from tests.helpers.reference_sampler import too_far

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_words_its_authors_published(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, int, int, int]
) -> None:
    assert philox(counter, key) == expected


def test_a_number_is_the_same_whenever_it_is_asked_for() -> None:
    places = list(itertools.product((0, 1, 2**63, 2**64 - 1), (0, 1, 7), (0, 1, 4095, 2**40)))
    forward = {place: uniform(*place) for place in places}
    assert {place: uniform(*place) for place in reversed(places)} == forward
    assert len(set(forward.values())) == len(places)


def test_known_numbers_stay() -> None:
    """A seed that a user noted down must give the same text after an update."""
    assert uniform(0, 0, 0) == (0xE169C58D6627E8D5 >> 11) / 2**53
    assert [uniform(seed, 1, 2) for seed in (0, 42)] == [0.7433432016459636, 0.12281292844861458]


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**64, 2**70 + 5])
def test_a_seed_counts_modulo_64_bits(seed: int) -> None:
    assert uniform(seed, 2, 3) == uniform(seed % 2**64, 2, 3)


@pytest.mark.parametrize("axis", ["seed", "choice", "position"])
def test_consecutive_numbers_are_uniform_and_independent(axis: str) -> None:
    """Neighbouring seeds, choices and positions are what users ask for: pairs of them must fill the square evenly."""
    where = {"seed": 7, "choice": 0, "position": 100}
    numbers = [uniform(**{**where, axis: where[axis] + step}) for step in range(20_000)]
    assert all(0 <= each < 1 for each in numbers)
    fine = Counter(int(each * 256) for each in numbers)
    assert not too_far([fine[cell] for cell in range(256)], [20_000 / 256] * 256)
    pairs = Counter((int(a * 16), int(b * 16)) for a, b in itertools.pairwise(numbers))
    cells = list(itertools.product(range(16), repeat=2))
    assert not too_far([pairs[cell] for cell in cells], [19_999 / 256] * 256)


def test_the_last_of_the_53_bits_are_random_too() -> None:
    low = Counter(int(uniform(3, 0, position) * 2**53) & 63 for position in range(20_000))
    assert not too_far([low[cell] for cell in range(64)], [20_000 / 64] * 64)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_each_input_bit_moves_half_of_the_output_bits(axis: int) -> None:
    changed = 0
    for bit in range(64):
        for start in range(8):
            place = [start * 0x9E3779B97F4A7C15 % 2**64, start, 5 * start]
            before = int(uniform(*place) * 2**53)
            place[axis] ^= 1 << bit
            changed += (before ^ int(uniform(*place) * 2**53)).bit_count()
    assert 0.48 < changed / (64 * 8 * 53) < 0.52
