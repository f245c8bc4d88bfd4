"""The description for machines says what the server does: the same fields, of the same types."""

from typing import Any

import pytest

from server.api.types import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody, Wire
from tests.helpers.api_world import make_world
from tests.helpers.asgi import call

BODIES: dict[str, type[Wire]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}


async def described() -> Any:
    return (await call(make_world().app, "GET", "/openapi.json")).json()


@pytest.mark.parametrize("path", BODIES)
async def test_every_body_is_described_field_by_field(path: str) -> None:
    schema = await described()
    content = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    name = content["$ref"].removeprefix("#/components/schemas/")
    assert set(schema["components"]["schemas"][name]["properties"]) == set(BODIES[path].model_fields)
    assert schema["components"]["schemas"][name]["additionalProperties"] is False


async def test_a_prompt_is_described_in_all_four_forms() -> None:
    prompt = (await described())["components"]["schemas"]["CompletionBody"]["properties"]["prompt"]
    forms = [(form["type"], (form.get("items") or {}).get("type")) for form in prompt["anyOf"]]
    assert forms == [("string", None), ("array", "string"), ("array", "integer"), ("array", "array")]


async def test_every_reference_leads_somewhere() -> None:
    schema = await described()

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
