"""/v1/capabilities says what the wire types say, and its defaults are what really counts."""

from typing import Any

import pytest
from msgspec import structs

from server.api.defaults import BY_TYPE, FIXED
from server.api.serving import SamplingDefaults
from server.api.types import UNSERVED, ChatBody, CompletionBody, DetokenizeBody, StreamOptions, TokenizeBody, Wire
from tests.helpers.api_world import READY, World, make_world
from tests.helpers.asgi import call

BODIES: dict[str, type[Wire]] = {
    "/v1/completions": CompletionBody,
    "/v1/chat/completions": ChatBody,
    "/v1/completions/render": CompletionBody,
    "/v1/chat/completions/render": ChatBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
NEEDED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
}
MODEL = SamplingDefaults(temperature=0.25, top_p=0.5, top_k=7)


async def capabilities(world: World | None = None) -> Any:
    answered = await call((world or make_world(defaults=MODEL)).app, "GET", "/v1/capabilities")
    assert answered.status == 200
    return answered.json()


async def fields_of(path: str) -> dict[str, Any]:
    (entry,) = [each for each in (await capabilities())["endpoints"] if each["path"] == path and "fields" in each]
    found: dict[str, Any] = entry["fields"]
    return found


@pytest.mark.parametrize("path", BODIES)
async def test_every_field_of_every_type_is_there_with_a_type_and_a_default(path: str) -> None:
    fields = await fields_of(path)
    assert list(fields) == list(BODIES[path].model_fields)
    for name, field in fields.items():
        assert "type" in field or "anyOf" in field or "const" in field or "enum" in field, name
        assert ("default" in field) != field.get("required", False)
        assert "null" not in str(field), "null is the same as leaving a field out"


async def test_ranges_are_those_of_the_types() -> None:
    fields = await fields_of("/v1/completions")
    assert fields["temperature"] == {"type": "number", "minimum": 0, "maximum": 2, "default": 0.25}
    assert fields["top_k"] == {"type": "integer", "minimum": -1, "default": 7}
    assert fields["max_tokens"] == {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "default": 16}
    assert fields["repetition_penalty"]["exclusiveMinimum"] == 0
    assert fields["prompt"]["required"] is True
    assert fields["stream_options"]["fields"]["include_usage"] == {"type": "boolean", "default": False}
    role = (await fields_of("/v1/chat/completions"))["messages"]["items"]["fields"]["role"]
    assert "developer" in role["enum"]


async def test_what_is_known_but_not_served_is_listed_with_what_is_accepted() -> None:
    (entry,) = [e for e in (await capabilities())["endpoints"] if e["path"] == "/v1/chat/completions"]
    harmless = entry["accepted_when_they_ask_for_nothing"]
    assert {name: tuple(values) for name, values in harmless.items()} == UNSERVED[ChatBody]


async def test_every_route_of_the_description_is_listed() -> None:
    world = make_world()
    described = (await call(world.app, "GET", "/openapi.json")).json()["paths"]
    listed = {(each["method"], each["path"]) for each in (await capabilities(world))["endpoints"]}
    assert listed == {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert "/v1/embeddings" in (await capabilities(world))["unsupported_endpoints"]


@pytest.mark.parametrize("exact", [True, False])
async def test_it_says_whether_answers_are_the_same_bits_in_any_company(exact: bool) -> None:
    world = make_world()
    world.service.info = structs.replace(READY, bit_exact=exact)
    said = await capabilities(world)
    assert said["bit_exact"] is exact
    assert said["limits"] == {"max_model_len": 200, "max_sequences": 16, "max_body_bytes": 8 * 2**20}


async def test_before_the_engine_has_loaded_nothing_is_promised() -> None:
    world = make_world()
    world.service.info = None
    assert (await call(world.app, "GET", "/v1/capabilities")).status == 503


@pytest.mark.parametrize("path", NEEDED)
async def test_saying_a_default_is_the_same_as_saying_nothing(path: str) -> None:
    async def sent(**fields: Any) -> Any:
        world = make_world(defaults=MODEL)
        answered = await call(world.app, "POST", path, NEEDED[path] | {"seed": 1} | fields)
        assert answered.status == 200, answered.body
        asked = [(r.prompt, r.max_tokens, r.params) for r in world.service.submitted]
        body = answered.json() | {"id": None, "created": None}
        return asked, body

    nothing = await sent()
    for name, field in (await fields_of(path)).items():
        if field.get("default") is not None:
            assert await sent(**{name: field["default"]}) == nothing, name


def test_no_default_is_stated_of_a_field_that_is_not_there() -> None:
    wires = {wire.__name__: wire for wire in BODIES.values()}
    known = {name for wire in wires.values() for name in wire.model_fields} | set(StreamOptions.model_fields)
    assert set(FIXED) <= known
    assert all(set(names) <= set(wires[wire].model_fields) for wire, names in BY_TYPE.items())
