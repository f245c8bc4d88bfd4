"""Law 7 on paper: docs/api.md has a line for every field, with a test that exists, and none for what is no field."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from server.api.types import ChatBody, CompletionBody, Wire

ROOT = Path(__file__).resolve().parent.parent.parent
BODIES = (CompletionBody, ChatBody)


@cache
def rows() -> list[tuple[list[str], list[str], list[str]]]:
    """Of each line of the tables that end in "Proven by": names of fields, its cells, names of tests."""
    found, inside = [], False
    for line in (ROOT / "docs" / "api.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[-1] == "Proven by":
            inside = True
        elif inside and not set(line) <= set("|-"):
            found.append((re.findall(r"`([^`]+)`", cells[0]), cells, re.findall(r"`(test_\w+)`", cells[-1])))
    return found


@cache
def all_tests() -> set[str]:
    """Names of all test functions."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("body", BODIES)
def test_every_field_has_a_line(body: type[Wire]) -> None:
    assert set(body.model_fields) <= {name for names, _, _ in rows() for name in names}


def test_every_line_is_about_a_field() -> None:
    known = {name for body in BODIES for name in body.model_fields}
    assert {name for names, _, _ in rows() for name in names} <= known


def test_every_line_says_what_is_accepted_and_names_tests_that_exist() -> None:
    assert len(rows()) > 30
    for names, cells, named in rows():
        assert names, cells
        assert len(cells) == 5, f"{names}: {cells}"
        assert cells[1], f"{names}: accepted values are missing"
        assert named, f"{names}: no test"
        assert set(named) <= all_tests(), f"{names}: {set(named) - all_tests()}"
