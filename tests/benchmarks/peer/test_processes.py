"""Programs that are measured: their last line, their failures, and a neighbour that takes a core and goes away."""

import sys
from pathlib import Path

import pytest

from benchmarks.peer.contests import MeasureFailed
from benchmarks.peer.processes import busy_neighbour, json_of, last_json, output_of
from tests.helpers.waiting import eventually_blocking, is_running


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_the_last_line_counts_whatever_came_before() -> None:
    assert last_json('loading\n{"old": 1}\n{"tok_s": 2.5}\n\n') == {"tok_s": 2.5}
    assert json_of(python("print('hello'); print('{\"a\": 1}')")) == {"a": 1}


@pytest.mark.parametrize("output", ["", "no json", '{"a": 1}\nand then this'])
def test_a_last_line_of_anything_else_is_a_failure(output: str) -> None:
    with pytest.raises(MeasureFailed, match="no JSON"):
        last_json(output)


def test_a_programs_failure_comes_with_its_code_and_the_end_of_its_errors() -> None:
    with pytest.raises(MeasureFailed, match=r"code 3: .*out of luck$") as caught:
        output_of(python("import sys; print('x' * 5000 + 'out of luck', file=sys.stderr); sys.exit(3)"))
    assert len(str(caught.value)) < 400


def test_a_program_that_is_not_there_or_never_ends_is_a_failure() -> None:
    with pytest.raises(MeasureFailed, match="could not be started"):
        output_of(["/nonexistent/llama-bench"])
    with pytest.raises(MeasureFailed, match=r"within 0\.2 s"):
        output_of(python("import signal; signal.pause()"), timeout_s=0.2)


def test_errors_are_part_of_the_output_only_where_asked_for() -> None:
    code = python("import sys; print('out'); print('err', file=sys.stderr)")
    assert output_of(code) == "out\n"
    assert sorted(output_of(code, errors_too=True).split()) == ["err", "out"]


def test_children_find_this_repository_and_what_is_added() -> None:
    code = python("import os, benchmarks.peer.job; print(os.environ['MORE'])")
    assert output_of(code, env={"MORE": "more"}) == "more\n"


def test_the_neighbour_is_there_as_long_as_it_is_wanted() -> None:
    with busy_neighbour() as pid:
        assert is_running(pid)
        eventually_blocking(lambda: ticks(pid) > 2)
    assert not is_running(pid)


def ticks(pid: int) -> int:
    """CPU time that the process took."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
