"""/v1/responses: OpenAI's own types read every answer and event; nothing is stored, and what asks for it is refused."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from server.api.types import UNSERVED, ResponsesBody
from server.engine.errors import EngineUnavailable
from server.engine.request import Request
from tests.helpers.api_world import Step, World, events_of, make_world, roomy, says
from tests.helpers.asgi import Answered, Call, call
from tests.helpers.tiny_text import ids_of, piece_id

PATH = "/v1/responses"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
IMAGE = {"type": "input_image", "image_url": "https://example.com/a.png"}
VARYING = ("id", "created_at", "completed_at", "kvell")


async def respond(world: World | None = None, **fields: Any) -> Answered:
    return await call((world or make_world(says("Hello"))).app, "POST", PATH, {"input": "hi"} | fields)


async def response(world: World | None = None, **fields: Any) -> Response:
    answered = await respond(world, **fields)
    assert answered.status == 200, answered.body
    return Response.model_validate(answered.json(), strict=True)


async def events(world: World | None = None, **fields: Any) -> list[dict[str, Any]]:
    answered = await respond(world, stream=True, **fields)
    assert answered.status == 200, answered.body
    found = answered.named_events()
    for number, event in enumerate(found):
        read = EVENT.validate_python(event)
        assert type(read).__name__ != "object"
        assert event["sequence_number"] == number
    return found


async def sent(**fields: Any) -> Request:
    """What the engine gets."""
    world = make_world(says("ok"))
    await response(world, **fields)
    return world.service.submitted[0]


async def test_a_whole_answer_is_a_response() -> None:
    said = await response(max_output_tokens=50, metadata={"run": "7"}, user="ann", instructions="Be brief.")
    assert said.output_text == "Hello"
    assert (said.status, said.error, said.incomplete_details) == ("completed", None, None)
    assert said.id.startswith("resp_")
    (item,) = said.output
    assert item.type == "message"
    assert (item.id, item.status, item.role) == (said.id.replace("resp_", "msg_"), "completed", "assistant")
    assert said.usage is not None
    assert (said.usage.output_tokens, said.usage.total_tokens) == (6, said.usage.input_tokens + 6)
    assert (said.max_output_tokens, said.metadata, said.user) == (50, {"run": "7"}, "ann")
    assert (said.instructions, said.temperature, said.top_p) == ("Be brief.", 1.0, 1.0)


async def test_an_answer_that_the_limit_cuts_is_incomplete() -> None:
    said = await response(max_output_tokens=2)
    assert (said.output_text, said.status) == ("He", "incomplete")
    assert said.incomplete_details is not None
    assert said.incomplete_details.reason == "max_output_tokens"
    assert said.output[0].status == "incomplete"  # type: ignore[union-attr]


async def test_a_stream_has_openai_s_events_in_order() -> None:
    kinds = [event["type"].removeprefix("response.") for event in await events(make_world(says("ab")))]
    assert kinds == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]


@pytest.mark.parametrize("limit", [3, 50])
@pytest.mark.parametrize("logprobs", [False, True])
async def test_the_stream_is_the_answer(limit: int, logprobs: bool) -> None:
    fields: dict[str, Any] = {"max_output_tokens": limit, "seed": 1}
    if logprobs:
        fields |= {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    play = says("é🎉", piece_id("lo"), "x", cached=3)
    whole = (await respond(make_world(play), **fields)).json()
    streamed = await events(make_world(play), **fields)
    deltas = [event for event in streamed if event["type"] == "response.output_text.delta"]
    part = whole["output"][0]["content"][0]
    assert "".join(event["delta"] for event in deltas) == part["text"]
    assert [entry for event in deltas for entry in event["logprobs"]] == part["logprobs"]
    assert bool(part["logprobs"]) == logprobs

    def same(said: dict[str, Any]) -> dict[str, Any]:
        items = [item | {"id": None} for item in said["output"]]
        return said | {"output": items} | dict.fromkeys(VARYING)

    assert same(streamed[-1]["response"]) == same(whole)
    assert {event["item_id"] for event in streamed if "item_id" in event} == {streamed[2]["item"]["id"]}
    assert streamed[-1]["response"]["id"] == streamed[0]["response"]["id"]


async def test_an_answer_without_text_has_an_empty_message_streamed_or_not() -> None:
    play = says("")
    assert (await response(make_world(play))).output_text == ""
    kinds = [event["type"] for event in await events(make_world(play))]
    assert "response.output_text.delta" not in kinds
    assert kinds.count("response.output_item.done") == 1


async def test_input_becomes_the_messages_of_a_chat() -> None:
    items = [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}] * 2},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}],
        },
        {"role": "user", "content": "c"},
    ]
    request = await sent(input=items, instructions="Now.")
    turns = (("system", "Now."), ("system", "Be kind."), ("user", "aa"), ("assistant", "b"), ("user", "c"))
    parts = [part for role, text in turns for part in (258, f"{role}\n{text}", 259)]
    assert request.prompt == ids_of(256, *parts, 258, "assistant\n")


EFFECTS: dict[str, tuple[Any, str, Any]] = {
    "temperature": (0.5, "temperature", 0.5),
    "top_p": (0.25, "top_p", 0.25),
    "top_k": (3, "top_k", 3),
    "min_p": (0.5, "min_p", 0.5),
    "seed": (7, "seed", 7),
    "ignore_eos": (True, "stop_token_ids", ()),
    "top_logprobs": (4, "num_logprobs", 4),
    "include": (["message.output_text.logprobs"], "num_logprobs", 0),
}
ELSEWHERE = {
    *("model", "input", "instructions", "max_output_tokens", "stream", "stream_options", "user", "metadata"),
    *("text", "tools", "tool_choice", "parallel_tool_calls", "safety_identifier", "prompt_cache_key"),
}


@pytest.mark.parametrize("name", EFFECTS)
async def test_a_field_reaches_the_engine(name: str) -> None:
    value, param, becomes = EFFECTS[name]
    assert getattr((await sent(**{name: value})).params, param) == becomes
    assert getattr((await sent()).params, param) != becomes


def test_no_field_is_without_a_test() -> None:
    assert set(ResponsesBody.model_fields) == set(EFFECTS) | ELSEWHERE


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"input": None}, "input", "invalid_value"),
        ({"input": []}, "input", "invalid_value"),
        ({"input": 5}, "input", "invalid_value"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role", "invalid_value"),
        ({"input": [{"role": "user", "content": []}]}, "input[0].content", "invalid_value"),
        ({"input": [{"role": "user", "content": "a", "contents": 1}]}, "input[0].contents", "unknown_parameter"),
        (
            {"input": [{"role": "user", "content": [IMAGE]}]},
            "input[0].content[0]",
            "unsupported_value",
        ),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input[0]", "unsupported_value"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]", "unsupported_value"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id", "invalid_value"),
        ({"input": "hi " * 300}, "input", "context_length_exceeded"),
        ({"max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
        ({"max_output_tokens": 1000}, "input", "context_length_exceeded"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"include": ["file_search_call.results"]}, "include[0]", "invalid_value"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]", "unsupported_value"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0]", "unsupported_value"),
        ({"tool_choice": "sometimes"}, "tool_choice", "unsupported_value"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name", "invalid_value"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "unsupported_value"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema", "invalid_value"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "invalid_value"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation", "invalid_value"),
        ({"max_tokens": 5}, "max_tokens", "unknown_parameter"),
        ({"n": 2}, "n", "unknown_parameter"),
        ({"model": "huge"}, "model", "model_not_found"),
        # what needs a memory
        ({"store": True}, "store", "unsupported_value"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "unsupported_value"),
        ({"background": True}, "background", "unsupported_value"),
        ({"conversation": "conv_1"}, "conversation", "unsupported_value"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "unsupported_value"),
        ({"reasoning": {"effort": "high"}}, "reasoning", "unsupported_value"),
        ({"truncation": "auto"}, "truncation", "unsupported_value"),
        ({"service_tier": "flex"}, "service_tier", "unsupported_value"),
        ({"max_tool_calls": 1}, "max_tool_calls", "unsupported_value"),
        ({"prompt_cache_retention": "24h"}, "prompt_cache_retention", "unsupported_value"),
        ({"moderation": {"model": "x"}}, "moderation", "unsupported_value"),
        ({"context_management": [{"type": "compaction"}]}, "context_management", "unsupported_value"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], param: str, code: str) -> None:
    world = make_world()
    answered = await respond(world, **fields)
    assert (answered.error["param"], answered.error["code"]) == (param, code)
    assert answered.status == (404 if code == "model_not_found" else 400)
    assert not world.service.submitted


HARMLESS = [(name, value) for name, values in UNSERVED[ResponsesBody].items() for value in (None, *values)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *HARMLESS,
        ("tools", []),
        ("text", {"format": {"type": "text"}, "verbosity": "medium"}),
        ("include", ["reasoning.encrypted_content"]),
        ("stream_options", {"include_obfuscation": False}),
    ],
)
async def test_what_asks_for_nothing_is_accepted(name: str, value: Any) -> None:
    asked = await sent(seed=1, **{name: value} if name != "seed" else {})
    assert (asked.prompt, asked.params) == ((await sent(seed=1)).prompt, (await sent(seed=1)).params)


async def test_null_is_the_same_as_leaving_a_field_out() -> None:
    nulls = dict.fromkeys(name for name in ResponsesBody.model_fields if name not in ("input", "seed"))
    asked, plain = await sent(seed=1, **nulls), await sent(seed=1)
    assert (asked.prompt, asked.max_tokens, asked.params) == (plain.prompt, plain.max_tokens, plain.params)


async def test_a_failure_in_the_middle_ends_with_the_error_and_a_failed_response() -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield events_of(requests[0], ids_of("ab"))[0]
        yield EngineUnavailable("killed")

    found = await events(make_world(play))
    error, last = found[-2:]
    assert (error["type"], error["code"], error["message"]) == ("error", "engine_unavailable", "killed")
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {"code": "server_error", "message": "killed"}
    assert last["response"]["output"][0]["content"][0]["text"] == "a"
    assert last["response"]["usage"] is None


TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'


@pytest.mark.parametrize("per_step", [1, 4, 1000])
@pytest.mark.parametrize("said", ["See:\n" + CALL + "\n" + CALL, CALL, "None."])
async def test_calls_are_items_and_the_stream_is_the_answer(said: str, per_step: int) -> None:
    play = says(said, per_step=per_step)
    whole = await response(roomy(play), tools=[TOOL], seed=3)
    found = await events(roomy(play), tools=[TOOL], seed=3)
    text, calls = said.partition("<tool_call>")[0].strip(), said.count(CALL)
    assert [item.type for item in whole.output] == ["message"] * bool(text) + ["function_call"] * calls
    assert whole.output_text == text
    for item in whole.output:
        if item.type == "function_call":
            assert (item.name, item.arguments, item.status) == ("weather", '{"city": "Ulm"}', "completed")
    streamed = Response.model_validate(found[-1]["response"], strict=True)
    assert [item.to_dict() | {"id": None} for item in streamed.output] == [
        item.to_dict() | {"id": None} for item in whole.output
    ]
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert done == found[-1]["response"]["output"]
    arguments = [event["delta"] for event in found if event["type"] == "response.function_call_arguments.delta"]
    assert "".join(arguments) == '{"city": "Ulm"}' * calls
    open_items = 0
    for event in found:
        open_items += {"response.output_item.added": 1, "response.output_item.done": -1}.get(event["type"], 0)
        assert open_items in (0, 1)


async def test_a_call_that_the_limit_cuts_is_incomplete() -> None:
    said = await response(roomy(says("Yes. " + CALL)), tools=[TOOL], max_output_tokens=60)
    assert (said.status, [item.status for item in said.output]) == ("incomplete", ["completed", "incomplete"])  # type: ignore[union-attr]


async def test_the_kvell_object_tells_how_it_came_about() -> None:
    whole = (await respond(seed=5)).json()["kvell"]
    assert (whole["seed"], whole["ended_by"]) == (5, "stop_token")
    found = await events(seed=5)
    assert found[-1]["response"]["kvell"]["ended_by"] == "stop_token"
    assert "kvell" not in found[0]["response"]


async def test_a_format_reaches_the_engine_and_its_faults_are_told_by_this_api_s_names() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"type": "json_schema", "name": "x", "schema": schema}
    constraint = (await sent(text={"format": wanted})).constraint
    assert constraint is not None
    assert (constraint.kind, json.loads(constraint.source)) == ("json_schema", schema)
    answered = await respond(text={"format": wanted | {"schema": {"type": "no such"}}})
    assert answered.error["param"] == "text.format.schema"
    assert answered.error["message"].startswith("text.format.schema: ")
    bad = TOOL | {"parameters": {"type": "object", "properties": {"a": {"type": "no such"}}}}
    answered = await respond(roomy(says("x")), tools=[bad], tool_choice="required")
    assert answered.error["param"] == "tools[0].parameters.properties.a"


async def test_a_cancelled_stream_says_so() -> None:
    gate = asyncio.Event()

    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield events_of(requests[0], ids_of("ab"))[0]
        yield gate

    world = make_world(play)
    under_way = Call(world.app, "POST", PATH, [b'{"input": "hi", "stream": true}'], {"x-request-id": "mine"})
    await under_way.wrote()
    assert (await call(world.app, "DELETE", "/v1/requests/mine")).status == 200
    error, last = (await under_way.done()).named_events()[-2:]
    assert error["code"] == "request_cancelled"
    assert last["response"]["status"] == "cancelled"
    gate.set()
