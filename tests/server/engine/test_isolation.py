"""When a batch raises, the guilty are found and the others get their results."""

from collections.abc import Sequence
from itertools import combinations

import pytest

from server.engine.isolation import run_isolated


class Squares:
    """Squares numbers, and raises when it sees a guilty one. Counts its calls."""

    def __init__(self, guilty: set[int]) -> None:
        self.guilty = guilty
        self.calls = 0

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls += 1
        for item in items:
            if item in self.guilty:
                raise ValueError(item)
        return [item * item for item in items]


def results(square: Squares, count: int) -> dict[int, int | str]:
    """Per item its square, or the text of its exception."""
    found: dict[int, int | str] = {}
    for part, result in run_isolated(square, range(count)):
        if isinstance(result, Exception):
            (item,) = part
            found[item] = str(result)
        else:
            found.update(zip(part, result, strict=True))
    return found


def test_a_batch_that_succeeds_is_called_once_and_stays_whole() -> None:
    square = Squares(set())
    assert run_isolated(square, [1, 2, 3]) == [([1, 2, 3], [1, 4, 9])]
    assert square.calls == 1


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8])
def test_exactly_the_guilty_get_their_exception(count: int) -> None:
    for number in range(count + 1):
        for guilty in combinations(range(count), number):
            expected = {item: str(item) if item in guilty else item * item for item in range(count)}
            assert results(Squares(set(guilty)), count) == expected


def test_the_order_stays() -> None:
    assert list(results(Squares({2, 5}), 9)) == list(range(9))


def test_one_guilty_among_many_costs_few_calls() -> None:
    square = Squares({37})
    results(square, 64)
    assert square.calls <= 13


def test_a_call_that_is_only_too_big_succeeds_in_parts() -> None:
    def limited(items: Sequence[int]) -> list[int]:
        if len(items) > 2:
            raise MemoryError
        return list(items)

    parts = run_isolated(limited, range(7))
    assert [item for _, result in parts for item in result] == list(range(7))  # type: ignore[union-attr]


def test_an_interrupt_is_not_a_requests_fault() -> None:
    def interrupted(items: Sequence[int]) -> list[int]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_isolated(interrupted, [1, 2])
