"""What is a grammar and what is not, without any tokens."""

import json

import pytest

from server.engine.grammar import BadConstraint, check, one_line
from server.engine.request import Constraint, ConstraintKind

GOOD: list[tuple[ConstraintKind, str]] = [
    ("json_object", ""),
    ("json_schema", "{}"),
    ("json_schema", '{"type": "string", "pattern": "^[a-z]/\\\\d$"}'),
    ("regex", r'(a|b)/"\d+\s'),
    ("regex", "é\n{2}"),
    ("choice", json.dumps(["yes", 'a "b"', "ü\n", "c\\d"])),
    ("lark", 'start: "a" | b\nb: /x+/'),
    ("lark", 'start: <|a_token_that_only_the_vocabulary_knows|> "b"'),
]


@pytest.mark.parametrize(("kind", "source"), GOOD)
def test_a_grammar_that_can_be_compiled_passes(kind: ConstraintKind, source: str) -> None:
    check(Constraint(kind, source))


BAD: list[tuple[ConstraintKind, str, str]] = [
    ("json_schema", '{"not": {"type": "string"}}', r'Unimplemented keys: \["not"\]'),
    ("json_schema", '{"type": "array", "uniqueItems": true}', r'Unimplemented keys: \["uniqueItems"\]'),
    ("json_schema", '{"type": "strnig"}', "Invalid type: strnig"),
    ("json_schema", '{"$ref": "#/$defs/gone"}', r"Pointer '/\$defs/gone' does not exist"),
    ("json_schema", '{"type": "string", "format": "ipv5"}', "Unknown format: ipv5"),
    ("json_schema", '{"type": "integer", "minimum": 5, "maximum": 3}', "minimum .5. is greater than maximum .3."),
    ("json_schema", '{"type": "string", "pattern": "(?=a)b"}', "look-around"),
    ("json_schema", '{"oneOf": [{"type": "string"}, {"maxLength": 3}]}', "oneOf constraints are not supported"),
    ("regex", "a(b", "unclosed group"),
    ("lark", "start: a", 'at 1.8.: unknown name: "a"$'),
    ("lark", "", "no|Empty|empty|start"),
]


@pytest.mark.parametrize(("kind", "source", "message"), BAD)
def test_what_cant_be_compiled_is_one_line_that_says_why(kind: ConstraintKind, source: str, message: str) -> None:
    with pytest.raises(BadConstraint, match=message) as caught:
        check(Constraint(kind, source))
    assert "\n" not in str(caught.value)
    assert "no_forcing" not in str(caught.value), "our own additions are no business of the user's"


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("json_schema", '{"x-guidance": {"lenient": true}, "not": {}}'),
        ("json_schema", '{"x-guidance": {"coerce_one_of": true}, "oneOf": [{"type": "string"}, {"maxLength": 3}]}'),
        ("lark", 'start: %json {"x-guidance": {"lenient": true}, "not": {}}'),
    ],
)
def test_nobody_can_ask_for_a_schema_to_be_followed_in_part(kind: ConstraintKind, schema: str) -> None:
    with pytest.raises(BadConstraint):
        check(Constraint(kind, schema))


def test_a_long_message_is_cut() -> None:
    assert one_line("a " * 500) == "a " * 149 + "a…"
