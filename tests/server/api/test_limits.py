"""Every limit of a request: what just fits is served, and one more is a 400 that names field, value and limit."""

import json
import re
from typing import Any

import pytest

from server.api.body import MAX_DEPTH
from server.api.constraints import MAX_CHARACTERS, MAX_SCHEMA_DEPTH
from server.api.types.structured import MAX_CHOICES
from server.api.types.tools import MAX_TOOLS
from server.api.types.wire import MAX_BIASES, MAX_MESSAGES, MAX_STOP_CHARACTERS, MAX_STOPS
from tests.helpers.api_world import make_world
from tests.helpers.asgi import Answered, call

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES, TOKENIZE = "/v1/messages", "/v1/responses", "/tokenize"
USER = {"role": "user", "content": "x"}
NEEDED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [USER]},
    COMPLETIONS: {"prompt": "x"},
    MESSAGES: {"messages": [USER], "max_tokens": 5},
    RESPONSES: {"input": "x"},
    TOKENIZE: {"messages": [USER]},
}


def deep(levels: int) -> dict[str, Any]:
    """A schema of so many objects in one another."""
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def function(number: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": f"f{number}"}}


def anthropic_tool(number: int) -> dict[str, Any]:
    return {"name": f"f{number}", "input_schema": {"type": "object"}}


def json_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}


# path, field, what makes its value of a size, limit, where the fault is
LIMITS: list[tuple[str, str, Any, int, str]] = [
    (CHAT, "messages", lambda n: [USER] * n, MAX_MESSAGES, "messages"),
    (TOKENIZE, "messages", lambda n: [USER] * n, MAX_MESSAGES, "messages"),
    (MESSAGES, "messages", lambda n: [USER] * n, MAX_MESSAGES, "messages"),
    (RESPONSES, "input", lambda n: [USER] * n, MAX_MESSAGES, "input"),
    (CHAT, "stop", lambda n: ["s"] * n, MAX_STOPS, "stop"),
    (MESSAGES, "stop_sequences", lambda n: ["s"] * n, MAX_STOPS, "stop_sequences"),
    (CHAT, "stop", lambda n: "s" * n, MAX_STOP_CHARACTERS, "stop[0]"),
    (COMPLETIONS, "stop_token_ids", lambda n: [5] * n, 128, "stop_token_ids"),
    (COMPLETIONS, "n", lambda n: n, 128, "n"),
    (COMPLETIONS, "best_of", lambda n: n, 128, "best_of"),
    (COMPLETIONS, "logprobs", lambda n: n, 20, "logprobs"),
    (CHAT, "tools", lambda n: [function(i) for i in range(n)], MAX_TOOLS, "tools"),
    (MESSAGES, "tools", lambda n: [anthropic_tool(i) for i in range(n)], MAX_TOOLS, "tools"),
    (
        *(RESPONSES, "tools", lambda n: [{"type": "function", "name": f"f{i}"} for i in range(n)], MAX_TOOLS),
        "tools",
    ),
    (CHAT, "bad_words", lambda n: ["xyz"] * n, 128, "bad_words"),
    (CHAT, "bad_words", lambda n: ["x" * n], 200, "bad_words[0]"),
    (COMPLETIONS, "dry_sequence_breakers", lambda n: ["x"] * n, 16, "dry_sequence_breakers"),
    (COMPLETIONS, "allowed_token_ids", lambda n: [5] * n, 16384, "allowed_token_ids"),
    (CHAT, "structured_outputs", lambda n: {"choice": ["a"] * n}, MAX_CHOICES, "structured_outputs.choice"),
    (
        *(CHAT, "structured_outputs", lambda n: {"regex": "a" * (n - 1) + "?"}, MAX_CHARACTERS),
        "structured_outputs.regex",
    ),
    (
        *(COMPLETIONS, "response_format", lambda n: json_format(deep(n)), MAX_SCHEMA_DEPTH),
        "response_format.json_schema.schema",
    ),
    (
        *(COMPLETIONS, "structured_outputs", lambda n: {"json": json.dumps(deep(n))}, MAX_SCHEMA_DEPTH),
        "structured_outputs.json",
    ),
    (CHAT, "metadata", lambda n: {str(i): "" for i in range(n)}, 16, "metadata"),
]


async def ask(path: str, name: str, value: Any) -> Answered:
    return await call(make_world(max_sequences=128).app, "POST", path, NEEDED[path] | {name: value})


@pytest.mark.parametrize(("path", "name", "make", "limit", "where"), LIMITS)
async def test_one_more_than_the_limit_is_refused_with_field_and_limit(
    path: str, name: str, make: Any, limit: int, where: str
) -> None:
    answered = await ask(path, name, make(limit + 1))
    assert answered.status == 400
    error = answered.json()["error"]  # Anthropic's has no param
    assert where in error["message"]
    assert str(limit) in error["message"], error
    assert error.get("param", where) == where


@pytest.mark.parametrize(("path", "name", "make", "limit", "where"), LIMITS)
async def test_what_just_fits_is_not_refused_for_its_size(
    path: str, name: str, make: Any, limit: int, where: str
) -> None:
    answered = await ask(path, name, make(limit))
    if answered.status != 200:  # the tiny world has other limits, too
        assert re.search("context has|at once; this|regex: .* too", answered.json()["error"]["message"]), answered.body


async def test_the_ids_of_a_bias_are_counted_before_they_are_looked_up() -> None:
    answered = await ask(CHAT, "logit_bias", {str(i): 1 for i in range(MAX_BIASES + 1)})
    assert (answered.status, answered.error["param"]) == (400, "logit_bias")
    assert str(MAX_BIASES) in answered.error["message"]


@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1])
async def test_json_may_be_nested_so_deeply(levels: int) -> None:
    inner: Any = 1
    for _ in range(levels - 1):  # and the body itself
        inner = [inner]
    answered = await ask(CHAT, "unknown", inner)
    assert answered.status == 400
    assert answered.error["code"] == ("unknown_parameter" if levels == MAX_DEPTH else "invalid_json")
    assert (str(MAX_DEPTH) in answered.error["message"]) == (levels > MAX_DEPTH)


@pytest.mark.parametrize("shape", ["properties", "items", "anyOf", "not"])
async def test_schemas_far_too_deep_for_any_stack_are_refused_too(shape: str) -> None:
    opened = {"properties": '{"properties":{"a":', "items": '{"items":', "anyOf": '{"anyOf":[', "not": '{"not":'}[shape]
    closed = {"properties": "}}", "items": "}", "anyOf": "]}", "not": "}"}[shape]
    for depth in (40, 100, 100_000):
        answered = await ask(COMPLETIONS, "structured_outputs", {"json": opened * depth + "{}" + closed * depth})
        if answered.status != 200:
            assert (answered.status, answered.error["param"].startswith("structured_outputs.json")) == (400, True)
        assert answered.status == 400 or depth == 40
