"""What response_format and structured_outputs ask the engine for, and what is refused before it hears of it."""

import json
from typing import Any

import pytest

from server.api.constraints import fault_path
from server.engine.request import Constraint, Request, TokenEvent
from tests.helpers.api_world import make_world, says
from tests.helpers.asgi import call

PATHS = {"/v1/completions": {"prompt": "hi"}, "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]}}
both = pytest.mark.parametrize("path", PATHS)
SCHEMA = {"type": "object", "properties": {"ü": {"type": "string"}, "a": {"type": "integer"}}, "required": ["ü"]}


async def constraints_of(path: str, **fields: Any) -> list[Constraint | None]:
    world = make_world(says("ok"))
    answered = await call(world.app, "POST", path, PATHS[path] | fields)
    assert answered.status == 200, answered.body
    return [request.constraint for request in world.service.submitted]


async def error_of(path: str, **fields: Any) -> dict[str, Any]:
    world = make_world()
    answered = await call(world.app, "POST", path, PATHS[path] | fields)
    assert answered.status == 400, answered.body
    assert not world.service.submitted
    return answered.error


def schema_format(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema} | more}


@both
@pytest.mark.parametrize("strict", [None, True, False])
async def test_a_json_schema_reaches_the_engine_in_the_order_of_its_properties(path: str, strict: bool | None) -> None:
    (got,) = await constraints_of(path, response_format=schema_format(SCHEMA, strict=strict, description="one"))
    assert got is not None
    assert (got.kind, got.param) == ("json_schema", "response_format.json_schema.schema")
    assert json.dumps(json.loads(got.source)) == json.dumps(SCHEMA)


@both
@pytest.mark.parametrize(
    ("fields", "kind", "source"),
    [
        ({"response_format": {"type": "json_object"}}, "json_object", ""),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "any"}}}, "json_object", ""),
        ({"structured_outputs": {"json": {"type": "integer"}}}, "json_schema", '{"type": "integer"}'),
        ({"structured_outputs": {"json": '{"type":"integer"}'}}, "json_schema", '{"type": "integer"}'),
        ({"structured_outputs": {"json_object": True}}, "json_object", ""),
        ({"structured_outputs": {"regex": "a+"}}, "regex", "a+"),
        ({"structured_outputs": {"choice": ["yes", "nö"]}}, "choice", '["yes", "nö"]'),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, "lark", 'start: "a"'),
    ],
)
async def test_every_way_to_constrain_reaches_the_engine(path: str, fields: Any, kind: str, source: str) -> None:
    (got,) = await constraints_of(path, **fields)
    assert got is not None
    assert (got.kind, got.source) == (kind, source)


@both
@pytest.mark.parametrize("free", [{}, {"response_format": {"type": "text"}}, {"structured_outputs": None}])
async def test_without_one_the_answer_is_free(path: str, free: dict[str, Any]) -> None:
    assert await constraints_of(path, **free) == [None]


async def test_every_choice_of_every_prompt_is_constrained() -> None:
    got = await constraints_of("/v1/completions", prompt=["a", "b"], n=2, structured_outputs={"regex": "a"})
    assert [each.source for each in got if each] == ["a"] * 4


@both
@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type", "json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema"),
        ({"response_format": {"type": "text", "json_schema": {"name": "a"}}}, "response_format", "exactly when"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "response_format.json_schema.name",
            "required",
        ),
        ({"response_format": schema_format({}, name="a b")}, "response_format.json_schema.name", "pattern"),
        ({"response_format": schema_format([])}, "response_format.json_schema.schema", "dictionary"),
        ({"response_format": "json"}, "response_format", "object"),
        ({"structured_outputs": {}}, "structured_outputs", "one of"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "one of"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "at least 1"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice", "list"),
        ({"structured_outputs": {"json": "no json"}}, "structured_outputs.json", "JSON Schema"),
        ({"structured_outputs": {"json": "[]"}}, "structured_outputs.json", "JSON Schema"),
        ({"structured_outputs": {"regex": "a("}}, "structured_outputs.regex", "unclosed group"),
        ({"structured_outputs": {"grammar": "start: a"}}, "structured_outputs.grammar", "unknown name"),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "one of response_format and structured_outputs",
        ),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(path: str, fields: Any, param: str, words: str) -> None:
    error = await error_of(path, **fields)
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert words in error["message"]


async def test_a_schema_that_is_not_supported_is_refused_with_the_place() -> None:
    schema = {"type": "object", "properties": {"list": {"items": {"anyOf": [{}, {"not": {"type": "null"}}]}}}}
    error = await error_of("/v1/chat/completions", response_format=schema_format(schema))
    where = "response_format.json_schema.schema.properties.list.items.anyOf[1]"
    assert error["param"] == where
    assert error["message"] == f'{where}: Unimplemented keys: ["not"]'


@pytest.mark.parametrize(
    ("schema", "message", "path"),
    [
        ({"not": {}}, 'Unimplemented keys: ["not"]', ""),
        ({"$defs": {"a": {"if": {}}}, "$ref": "#/$defs/a"}, 'Unimplemented keys: ["if"]', ".$defs.a"),
        ({"$defs": {"a": {}}, "items": {"$ref": "#/$defs/b"}}, "Pointer '/$defs/b' does not exist", ".items"),
        ({"prefixItems": [{}, {"type": "x"}]}, "Invalid type: x", ".prefixItems[1]"),
        ({"patternProperties": {"^a": {"format": "x"}}}, "Unknown format: x", ".patternProperties.^a"),
        ({"additionalProperties": {"format": "x"}}, "Unknown format: x", ".additionalProperties"),
        (5, "whatever", ""),
    ],
)
def test_the_place_of_a_fault_is_the_innermost_part_that_has_it(schema: Any, message: str, path: str) -> None:
    assert "".join(fault_path(schema, message)) == path


@both
@pytest.mark.parametrize("stream", [False, True])
async def test_a_constraint_that_the_vocabulary_can_t_follow_is_a_400_too(path: str, stream: bool) -> None:
    def refuses(requests: Any) -> Any:
        yield [TokenEvent(r.id, finish="error", error="no such token", refused=True) for r in requests]

    world = make_world(refuses)
    fields = {"structured_outputs": {"grammar": "start: <|x|>"}, "stream": stream}
    answered = await call(world.app, "POST", path, PATHS[path] | fields)
    assert answered.status == 400
    assert answered.error["param"] == "structured_outputs.grammar"
    assert answered.error["message"] == "structured_outputs.grammar: no such token"


def test_requests_without_a_constraint_are_what_they_were() -> None:
    assert Request("a", (1,), 1, None).constraint is None  # type: ignore[arg-type]
