"""The waiting line: order of arrival, fair shares between owners, priorities that age."""

from collections import Counter
from itertools import count

import pytest

from model.sampling_params import SamplingParams
from server.engine.generation import Generation
from server.engine.line import AGEING_SECONDS, Line
from server.engine.request import Request

_numbers = count()


def waiting(owner: str = "", *, since: float = 0.0, priority: int = 0, weight: int = 1, output: int = 9) -> Generation:
    number = next(_numbers)
    request = Request(str(number), (1,), output, SamplingParams(), owner=owner, weight=weight, priority=priority)
    return Generation(request, arrival=number, waiting_since=since)


def let_in(line: Line, tokens: int = 10) -> Generation:
    generation = line.head()
    assert generation is not None
    line.take(generation, tokens)
    return generation


def test_one_owner_s_go_in_order_of_arrival() -> None:
    line, all_of_them = Line(), [waiting() for _ in range(5)]
    for each in all_of_them:
        line.add(each)
    assert (len(line), list(line)) == (5, all_of_them)
    assert [let_in(line) for _ in range(5)] == all_of_them
    assert line.head() is None


def test_the_preempted_return_first_the_oldest_of_them_before_all() -> None:
    line, one, old, older = Line(), waiting(), waiting(), waiting()
    line.add(one)
    line.put_back(old)
    line.put_back(older)
    assert [let_in(line) for _ in range(3)] == [older, old, one]


def test_who_ended_is_in_the_line_no_more() -> None:
    line, one, two, back = Line(), waiting(), waiting("b"), waiting()
    line.add(one)
    line.add(two)
    line.put_back(back)
    for each in (back, one, two):
        line.remove(each)
    assert (len(line), line.head()) == (0, None)


def test_tokens_are_shared_between_owners_however_many_requests_each_sends() -> None:
    line, taken = Line(), Counter[str]()
    for _ in range(100):
        line.add(waiting("many"))
    for _ in range(10):
        line.add(waiting("few"))
    for _ in range(20):
        taken[let_in(line).request.owner] += 1
    assert taken == {"many": 10, "few": 10}


def test_long_answers_count_for_what_they_take() -> None:
    line, taken = Line(), Counter[str]()
    for _ in range(100):
        line.add(waiting("long"))
        line.add(waiting("short"))
    for _ in range(44):
        generation = line.head()
        assert generation is not None
        tokens = 30 if generation.request.owner == "long" else 10
        line.take(generation, tokens)
        taken[generation.request.owner] += tokens
    assert abs(taken["long"] - taken["short"]) <= 30


def test_weights_are_shares() -> None:
    line, taken = Line(), Counter[str]()
    for _ in range(100):
        line.add(waiting("triple", weight=3))
        line.add(waiting("single"))
    for _ in range(40):
        taken[let_in(line).request.owner] += 1
    assert taken == {"triple": 30, "single": 10}


def test_what_was_not_taken_is_given_back() -> None:
    line = Line()
    for _ in range(3):
        line.add(waiting("a"))
        line.add(waiting("b"))
    first = let_in(line, 1000)
    let_in(line, 10)
    line.refund(first, 995)
    assert let_in(line).request.owner == "a"


@pytest.mark.parametrize("known", [False, True])
def test_idle_owners_save_nothing_up(known: bool) -> None:
    line = Line()
    if known:  # was here once, a long time ago
        line.add(waiting("late"))
        let_in(line)
    for _ in range(50):
        line.add(waiting("busy"))
    for _ in range(40):
        let_in(line)
    for _ in range(10):
        line.add(waiting("late"))
    assert Counter(let_in(line).request.owner for _ in range(10))["busy"] >= 4


def test_a_lower_priority_goes_first_within_an_owner_only() -> None:
    line = Line()
    usual, urgent, other = waiting("a"), waiting("a", priority=-1), waiting("b", priority=5)
    for each in (usual, urgent, other):
        line.add(each)
    assert [let_in(line) for _ in range(3)] == [urgent, other, usual]


def test_priorities_age_so_that_nothing_starves() -> None:
    line, patient = Line(), waiting(priority=2, since=0.0)
    line.add(patient)
    before = [waiting(since=AGEING_SECONDS * 2 - 0.1) for _ in range(3)]
    after = [waiting(since=AGEING_SECONDS * 2 + 0.1) for _ in range(3)]
    for each in after + before:
        line.add(each)
    assert [let_in(line) for _ in range(7)] == [*before, patient, *after]
