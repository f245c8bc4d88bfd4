"""What an overload run must show is judged by its figures, each on its own."""

import copy
import os
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.overload import Memory, judge, line, load
from server.bench.figures import Target, summarise
from server.bench.load import Run
from server.bench.outcome import Outcome
from tests.helpers.waiting import eventually_blocking

HOLDS = (
    "goodput at twice the capacity",
    "refusals in time",
    "nothing but answers and honest refusals",
    "those who come back are let in",
    "a thousand with large bodies are answered",
    "memory is flat",
)


def figures(*outcomes: Outcome) -> dict[str, Any]:
    return summarise(Run(list(outcomes), load_s=1.0), [Target("ttft", 2000)])


def ok(first_s: float = 0.5, **more: Any) -> Outcome:
    return Outcome(0, due=0.0, answered=first_s, ended=first_s + 1, pieces=[first_s, first_s + 0.1], **more)


def refused(after_s: float = 0.01, **more: Any) -> Outcome:
    return Outcome(0, due=0.0, head_sent=0.0, answered=after_s, ended=after_s, kind="503", **more)


@pytest.fixture
def good() -> dict[str, Any]:
    return {
        "at_capacity": figures(*[ok()] * 10),
        "at_twice": figures(*[ok()] * 9, refused()),
        "returning": figures(*[ok(returned=True)] * 4, refused(returned=True)),
        "burst": figures(refused(0.5), refused(2.9)),
        "memory_mib": [100.0] * 20,
    }


def failing(found: dict[str, Any]) -> list[str]:
    return [name for name, holds in judge(found)["holds"].items() if not holds]


def test_all_is_well(good: dict[str, Any]) -> None:
    judged = judge(good)
    assert tuple(judged["holds"]) == HOLDS
    assert failing(good) == []
    assert (judged["goodput_share"], judged["memory_growth_mib"]) == (0.9, 0.0)


WORSE: dict[str, Callable[[dict[str, Any]], object]] = {
    HOLDS[0]: lambda found: found.update(at_twice=figures(*[ok()] * 8, *[ok(2.5)] * 2, refused())),
    HOLDS[1]: lambda found: found.update(at_twice=figures(*[ok()] * 9, refused(0.06))),
    HOLDS[2]: lambda found: found["at_capacity"]["outcomes"].update(reset=1),
    HOLDS[3]: lambda found: found.update(returning=figures(*[ok(returned=True)] * 3, refused(returned=True))),
    HOLDS[4]: lambda found: found.update(burst=figures(refused(0.5), refused(3.1))),
    HOLDS[5]: lambda found: found.update(memory_mib=[100.0] * 10 + [150.0] * 10),
}


@pytest.mark.parametrize("what", HOLDS)
def test_each_fault_is_found_and_no_other(good: dict[str, Any], what: str) -> None:
    found = copy.deepcopy(good)
    WORSE[what](found)
    assert failing(found) == [what]


def test_a_burst_with_a_reset_is_not_answered(good: dict[str, Any]) -> None:
    good["burst"] = figures(refused(0.5), Outcome(0, due=0.0, ended=0.1, kind="reset"))
    assert failing(good) == [HOLDS[4]]


def test_a_line_says_what_became_of_a_run(good: dict[str, Any]) -> None:
    assert line("coming back", good["returning"]).startswith("coming back            good 4.00/s of 4 ok, 1 503;")
    assert "5 came back, 80% let in" in line("coming back", good["returning"])
    assert "all statuses within 2900 ms" in line("a thousand at once", good["burst"])


def test_a_load_is_a_command_with_its_options_at_the_end() -> None:
    command = load("http://x", "--rate", "2.5", seed=7)
    assert command[-2:] == ["--rate", "2.5"]
    assert command[command.index("--seed") + 1] == "7"


def test_memory_is_sampled_until_the_end() -> None:
    with Memory(os.getpid(), every_s=0.001) as memory:
        eventually_blocking(lambda: len(memory.samples) > 3)
    assert min(memory.samples) > 2**20
    assert not memory._thread.is_alive()
