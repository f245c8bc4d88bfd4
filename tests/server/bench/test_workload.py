"""Prompts have the length that was asked for, are the same in every run, and make valid bodies."""

import json
import random
from typing import Any

import pytest

from server.bench.workload import Lengths, Workload


def body(workload: Workload, number: int = 0, model: str = "m") -> dict[str, Any]:
    return dict(json.loads(b"".join(workload.body(number, model))))


@pytest.mark.parametrize(("text", "expected"), [("7", Lengths(7, 7)), ("3-9", Lengths(3, 9)), ("1-1", Lengths(1, 1))])
def test_lengths_are_read(text: str, expected: Lengths) -> None:
    assert Lengths.parse(text) == expected


@pytest.mark.parametrize("text", ["", "0", "x", "9-3", "-5", "5-", "1-x", "0-3"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Lengths.parse(text)


def test_a_range_reaches_both_of_its_ends() -> None:
    drawn = {Lengths(3, 5).draw(random.Random(seed)) for seed in range(50)}
    assert drawn == {3, 4, 5}


def test_a_prompt_has_so_many_words_and_the_same_in_every_run() -> None:
    workload = Workload(Lengths(50, 50), Lengths(1, 1), shared_prefix=30)
    one, two = (workload.text(number).split() for number in (0, 1))
    assert len(one) == len(two) == 50
    assert one[:30] == two[:30]
    assert one[30:] != two[30:]
    again = Workload(Lengths(50, 50), Lengths(1, 1), shared_prefix=30)
    assert again.text(0).split() == one
    other = Workload(Lengths(50, 50), Lengths(1, 1), shared_prefix=30, seed=1)
    assert other.text(0).split()[:30] != one[:30]


def test_a_prefix_longer_than_the_prompt_is_all_of_it() -> None:
    workload = Workload(Lengths(5, 5), Lengths(1, 1), shared_prefix=30)
    assert workload.text(0) == workload.text(1)
    assert len(workload.text(0).split()) == 30


def test_lengths_differ_from_request_to_request_within_the_range() -> None:
    workload = Workload(Lengths(5, 40), Lengths(2, 9))
    asked = [body(workload, number) for number in range(40)]
    assert {len(each["prompt"].split()) for each in asked} >= {5, 40} or len({len(e["prompt"]) for e in asked}) > 10
    assert all(5 <= len(each["prompt"].split()) <= 40 and 2 <= each["max_tokens"] <= 9 for each in asked)
    assert len({each["max_tokens"] for each in asked}) == 8


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_the_body_asks_for_what_was_set(endpoint: Any) -> None:
    workload = Workload(Lengths(6, 6), Lengths(3, 3), 2, endpoint, temperature=0.5, ignore_eos=True)
    asked = body(workload, 4, 'a "model"')
    prompt = asked["messages"][0]["content"] if endpoint == "chat" else asked["prompt"]
    assert prompt == workload.text(4)
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ('a "model"', 3, 0.5)
    assert (asked["stream"], asked["stream_options"]) == (True, {"include_usage": True})
    assert asked["ignore_eos"] is True
    assert workload.path == ("/v1/chat/completions" if endpoint == "chat" else "/v1/completions")


def test_a_field_that_not_every_server_knows_is_sent_only_when_asked_for() -> None:
    assert "ignore_eos" not in body(Workload(Lengths(6, 6), Lengths(3, 3)))


def test_long_bodies_share_the_memory_of_what_they_share() -> None:
    workload = Workload(Lengths(2000, 2000), Lengths(1, 1), shared_prefix=1990)
    (first, one), (second, two) = workload.body(0, "m"), workload.body(1, "m")
    assert first is second
    assert one != two
    assert len(first) > 5000 > len(one)
