"""POST /v1/chat/completions with tools: what the model is shown, and the answer's wording, whole and streamed."""

import json
from typing import Any

import pytest

from server.engine.request import Request
from tests.helpers.api_world import Play, World, make_world, roomy, says
from tests.helpers.asgi import call
from tests.helpers.tiny_text import text_of

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "Weather in Ulm?"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'


async def answer_of(play: Play, **fields: Any) -> tuple[World, dict[str, Any]]:
    world = roomy(play)
    answered = await call(world.app, "POST", PATH, {"messages": [USER], "tools": [TOOL]} | fields)
    assert answered.status == 200, answered.body
    return world, answered.json()


async def chunks_of(play: Play, **fields: Any) -> list[dict[str, Any]]:
    body = {"messages": [USER], "tools": [TOOL], "stream": True} | fields
    answered = await call(roomy(play).app, "POST", PATH, body)
    assert answered.status == 200, answered.body
    return [event for event in answered.events() if isinstance(event, dict)]


async def asked(**fields: Any) -> Request:
    world, _ = await answer_of(says("ok"), **fields)
    return world.service.submitted[0]


async def test_a_call_is_taken_out_of_the_text() -> None:
    _, body = await answer_of(says("Let me look.\n" + CALL))
    (choice,) = body["choices"]
    (made,) = choice["message"].pop("tool_calls")
    assert choice["message"] == {"role": "assistant", "content": "Let me look.", "refusal": None}
    assert choice["finish_reason"] == "tool_calls"
    assert made.pop("id").startswith("call_")
    assert made == {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}


async def test_an_answer_of_calls_only_has_no_content() -> None:
    _, body = await answer_of(says(CALL + "\n" + CALL))
    message = body["choices"][0]["message"]
    assert message["content"] is None
    one, two = message["tool_calls"]
    assert one["id"] != two["id"]


async def test_an_answer_without_calls_is_as_ever() -> None:
    _, body = await answer_of(says("It rains."))
    choice = body["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "It rains.", "refusal": None}
    assert choice["finish_reason"] == "stop"


async def test_an_answer_cut_within_a_call_says_length() -> None:
    _, body = await answer_of(says(CALL), max_tokens=50)
    choice = body["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"


@pytest.mark.parametrize("per_step", [1, 3, 1000])
@pytest.mark.parametrize("n", [1, 2])
async def test_a_stream_has_the_name_first_then_arguments_and_is_the_answer(per_step: int, n: int) -> None:
    play = says("See:\n" + CALL + "\n" + CALL, per_step=per_step)
    _, whole = await answer_of(play, n=n, seed=3)
    chunks = await chunks_of(play, n=n, seed=3)
    for index in range(n):
        deltas = [c["delta"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
        assert deltas[-1] == {}
        calls: dict[int, dict[str, Any]] = {}
        for part in (part for delta in deltas for part in delta.get("tool_calls", ())):
            if part["index"] not in calls:
                assert set(part) == {"index", "id", "type", "function"}
                calls[part["index"]] = {"id": part["id"], "type": "function", "function": dict(part["function"])}
            else:
                assert set(part) == {"index", "function"}
                assert set(part["function"]) == {"arguments"}
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        message = whole["choices"][index]["message"]
        assert list(calls.values()) == message["tool_calls"]
        assert "".join(delta.get("content") or "" for delta in deltas) == message["content"] == "See:"
    finishes = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert finishes == ["tool_calls"] * n


async def test_logprobs_come_with_the_parts_and_are_those_of_the_whole() -> None:
    play = says("A\n" + CALL)
    _, whole = await answer_of(play, logprobs=True)
    chunks = await chunks_of(play, logprobs=True)
    streamed = [
        token for chunk in chunks for c in chunk["choices"] if c["logprobs"] for token in c["logprobs"]["content"]
    ]
    assert streamed == whole["choices"][0]["logprobs"]["content"]
    assert len(streamed) == len("A\n" + CALL)


async def test_without_tools_the_same_text_is_content() -> None:
    _, body = await answer_of(says(CALL), tools=None)
    assert body["choices"][0]["message"]["content"] == CALL
    _, body = await answer_of(says(CALL), tool_choice="none")
    assert body["choices"][0]["message"]["content"] == CALL


async def test_the_model_is_told_of_the_tools_unless_none_may_be_called() -> None:
    assert json.dumps(TOOL["function"]) in text_of((await asked()).prompt)
    assert "weather" not in text_of((await asked(tool_choice="none")).prompt)


async def test_required_reaches_the_engine_as_a_constraint_on_every_choice() -> None:
    world, _ = await answer_of(says(CALL), tool_choice="required", n=3)
    constraints = [request.constraint for request in world.service.submitted]
    assert len(constraints) == 3
    assert all(each and each.kind == "lark" and "weather" in each.source for each in constraints)
    assert (await asked()).constraint is None


async def test_the_conversation_goes_on_after_a_call() -> None:
    made = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": [{"type": "text", "text": "Rain"}]},
    ]
    prompt = text_of((await asked(messages=messages)).prompt)
    assert CALL in prompt
    assert "<tool_response>\nRain\n</tool_response>" in prompt


@pytest.mark.parametrize(
    ("call_", "words"),
    [
        ({"id": "1", "function": {"name": "f"}}, "arguments"),
        ({"id": "1", "function": {"name": "", "arguments": "{}"}}, "name"),
        ({"id": "1", "type": "custom", "function": {"name": "f", "arguments": "{}"}}, "function"),
        ({"function": {"name": "f", "arguments": "{}"}}, "id"),
        ({"id": "1", "function": {"name": "f", "arguments": {}}}, "string"),
    ],
)
async def test_a_call_in_the_history_that_is_none_is_refused(call_: dict[str, Any], words: str) -> None:
    messages = [USER, {"role": "assistant", "tool_calls": [call_]}, USER]
    answered = await call(make_world().app, "POST", PATH, {"messages": messages})
    assert answered.status == 400
    assert answered.error["param"].startswith("messages[1].tool_calls[0]")
    assert words in answered.error["message"]
