"""The description for machines says what the server does: the same fields, of the same types."""

import asyncio
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from server.api.schema import COMPONENTS
from server.api.types import (
    ChatBody,
    CompletionBody,
    CountTokensBody,
    DetokenizeBody,
    MessagesBody,
    ResponsesBody,
    TokenizeBody,
    Wire,
)
from server.engine.errors import EngineUnavailable
from tests.helpers.api_world import World, make_world, says
from tests.helpers.asgi import Answered, call
from tests.helpers.tiny_text import piece_id

BODIES: dict[str, type[Wire]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountTokensBody,
    "/v1/completions/render": CompletionBody,
    "/v1/chat/completions/render": ChatBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}


@cache
def described() -> Any:
    return asyncio.run(call(make_world().app, "GET", "/openapi.json")).json()


@pytest.mark.parametrize("path", BODIES)
def test_every_body_is_described_field_by_field(path: str) -> None:
    schema = described()
    content = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    name = content["$ref"].removeprefix("#/components/schemas/")
    assert set(schema["components"]["schemas"][name]["properties"]) == set(BODIES[path].model_fields)
    assert schema["components"]["schemas"][name]["additionalProperties"] is False


def test_a_prompt_is_described_in_all_four_forms() -> None:
    prompt = (described())["components"]["schemas"]["CompletionBody"]["properties"]["prompt"]
    forms = [(form["type"], (form.get("items") or {}).get("type")) for form in prompt["anyOf"]]
    assert forms == [("string", None), ("array", "string"), ("array", "integer"), ("array", "array")]


def test_every_reference_leads_somewhere() -> None:
    schema = described()

    def references(part: Any) -> list[str]:
        if isinstance(part, dict):
            here = [part["$ref"]] if "$ref" in part else []
            return here + [r for value in part.values() for r in references(value)]
        return [r for value in part for r in references(value)] if isinstance(part, list) else []

    for reference in references(schema):
        name = reference.removeprefix("#/components/schemas/")
        assert name in schema["components"]["schemas"], reference


async def test_it_can_be_read_in_a_browser() -> None:
    answered = await call(make_world().app, "GET", "/docs")
    assert answered.status == 200
    assert b"/openapi.json" in answered.body


def operation(path: str, method: str = "post") -> Any:
    return described()["paths"][path][method]


def check(answered: Answered, path: str, method: str = "post") -> None:
    """The status, the content type and the body are as they are described."""
    response = operation(path, method)["responses"][str(answered.status)]
    kind = answered.headers["content-type"].partition(";")[0]
    schema = response["content"][kind]["schema"]
    if kind == "application/json":
        fits(answered.json(), schema)
    elif kind == "text/event-stream":
        events = answered.named_events() if b"event: " in answered.body else answered.chunks()
        for event in events:
            fits(event, schema["properties"]["data"]["anyOf"][1]["contentSchema"])


def fits(body: Any, schema: Any) -> None:
    whole = {"components": described()["components"]} | schema
    errors = [error.message for error in Draft202012Validator(whole).iter_errors(body)]
    assert not errors, (errors, body)


EXAMPLES = [
    (path, name)
    for path, methods in described()["paths"].items()
    if "requestBody" in methods.get("post", {})
    for name in methods["post"]["requestBody"]["content"]["application/json"]["examples"]
]


@pytest.mark.parametrize(("path", "name"), EXAMPLES)
async def test_every_example_runs_and_is_answered_as_described(path: str, name: str) -> None:
    body = operation(path)["requestBody"]["content"]["application/json"]["examples"][name]["value"]
    answered = await call(make_world(says("Hello")).app, "POST", path, body)
    assert answered.status == 200, answered.body
    check(answered, path)


def test_every_body_has_an_example() -> None:
    assert {path for path, _ in EXAMPLES} == set(BODIES)


WAYS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "logprobs": 2, "stop": "lo"}),
    ("/v1/completions", {"prompt": "a", "echo": True, "max_tokens": 3}),
    ("/v1/completions", {"prompt": "a", "stream_options": {"continuous_usage_stats": True, "include_usage": True}}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "logprobs": True, "top_logprobs": 2}),
    ("/v1/completions", {"prompt": "a", "echo": True, "logprobs": 1, "kvell_receipt": True, "return_token_ids": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "prompt_logprobs": 2, "n": 2}),
    ("/v1/responses", {"input": "a", "top_logprobs": 2, "max_output_tokens": 3, "metadata": {"a": "b"}}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}),
]


@pytest.mark.parametrize(("path", "fields"), WAYS)
@pytest.mark.parametrize("stream", [False, True])
async def test_every_way_of_answering_is_described(path: str, fields: dict[str, Any], stream: bool) -> None:
    world = make_world(says("é🎉", piece_id("lo"), "x", cached=1))
    if not stream:
        fields = {name: value for name, value in fields.items() if name != "stream_options"}
    answered = await call(world.app, "POST", path, fields | {"stream": stream})
    assert answered.status == 200, answered.body
    check(answered, path)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("get", "/health", 200),
        ("get", "/ready", 200),
        ("get", "/metrics", 200),
        ("get", "/v1/models", 200),
        ("get", "/v1/models/{name}", 200),
        ("get", "/v1/capabilities", 200),
        ("delete", "/v1/requests/{request_id}", 404),
    ],
)
async def test_what_has_no_body_is_described_too(method: str, path: str, status: int) -> None:
    asked = path.replace("{name}", "tiny").replace("{request_id}", "x")
    answered = await call(make_world().app, method.upper(), asked)
    assert answered.status == status
    check(answered, path, method)


def loading() -> World:
    world = make_world()
    world.service.info, world.service.state = None, "starting"
    return world


def refusing() -> World:
    world = make_world()
    world.service.refuse = EngineUnavailable("gone", retry_after=3)
    return world


@pytest.mark.parametrize("path", BODIES)
async def test_every_failure_is_described(path: str) -> None:
    body = operation(path)["requestBody"]["content"]["application/json"]["examples"]
    good = next(iter(body.values()))["value"]
    bad: list[tuple[World, Any, dict[str, str]]] = [
        (make_world(), {"x": 1}, {}),
        (make_world(), good | {"model": "huge"}, {}),
        (make_world(), good, {"content_type": "text/plain"}),
        (make_world(keys=("sesame",)), good, {}),
        (refusing(), good, {}),
        (loading(), good, {}),
    ]
    for world, fields, headers in bad:
        check(await call(world.app, "POST", path, fields, **headers), path)


def test_no_type_is_described_for_nothing() -> None:
    text = str(described()["paths"]) + str(described()["components"])
    for name in set(described()["components"]["schemas"]) - {"ToolMode"}:  # which is written as a plain string
        assert f"{COMPONENTS}{name}'" in text, name


@pytest.mark.parametrize(("path", "fields"), WAYS[:2])
async def test_a_replay_is_answered_as_described(path: str, fields: dict[str, Any]) -> None:
    world = make_world(says("Hello"))
    receipt = (await call(world.app, "POST", path, fields | {"kvell_receipt": True})).json()["kvell"]["receipt"]
    check(await call(world.app, "POST", "/v1/replay", {"receipt": receipt}), "/v1/replay")
    check(await call(world.app, "POST", "/v1/replay", {"receipt": receipt | {"kernels": "x"}}), "/v1/replay")
