"""The other APIs' requests say the same in the words of chat: tools, choices, formats, calls and their results."""

from typing import Any

import pytest

from server.api.fields import parse
from server.api.translate import chat_of_messages, chat_of_response, reworded
from server.api.types import MessagesBody, ResponsesBody
from server.engine.errors import InvalidValue

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "Ask it.", "parameters": PARAMETERS}


def response(**fields: Any) -> dict[str, Any]:
    return chat_of_response(parse({"input": "hi"} | fields, ResponsesBody))


def message(**fields: Any) -> dict[str, Any]:
    needed: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    return chat_of_messages(parse(needed | fields, MessagesBody))


def call(call_id: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": '{"city": "Ås"}'}
    return {"id": call_id, "type": "function", "function": function}


def test_what_is_not_said_is_not_asked() -> None:
    assert response() == {"messages": [{"role": "user", "content": "hi"}]}
    assert message() == {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 5}


def test_a_function_tool() -> None:
    tools = [{"type": "function", "function": FUNCTION}]
    assert response(tools=[{"type": "function"} | FUNCTION])["tools"] == tools
    theirs = {"name": "weather", "description": "Ask it.", "input_schema": PARAMETERS}
    assert message(tools=[theirs])["tools"] == tools
    strict = [{"type": "function", "function": FUNCTION | {"strict": True}}]
    assert response(tools=[{"type": "function", "strict": True} | FUNCTION])["tools"] == strict
    assert message(tools=[theirs | {"strict": True, "type": "custom"}])["tools"] == strict


NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("none", "none"), ("auto", "auto"), ("required", "required"), ({"type": "function", "name": "weather"}, NAMED)],
)
def test_a_tool_choice_of_a_response(theirs: Any, ours: Any) -> None:
    assert response(tool_choice=theirs)["tool_choice"] == ours


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "tool", "name": "weather"}, {"tool_choice": NAMED}),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        (
            {"type": "any", "disable_parallel_tool_use": False},
            {"tool_choice": "required", "parallel_tool_calls": True},
        ),
    ],
)
def test_a_tool_choice_of_a_message(theirs: Any, ours: dict[str, Any]) -> None:
    said = message(tool_choice=theirs)
    assert {name: said[name] for name in said if name in ("tool_choice", "parallel_tool_calls")} == ours


def test_calls_and_results_of_a_response() -> None:
    arguments = '{"city": "Ås"}'
    calls = [{"type": "function_call", "call_id": k, "name": "weather", "arguments": arguments} for k in ("a", "b")]
    results = [{"type": "function_call_output", "call_id": k, "output": "rain"} for k in ("a", "b")]
    items = [{"role": "user", "content": "hi"}, *calls, *results, {"role": "assistant", "content": "Rain."}, calls[0]]
    assert response(input=items)["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
        {"role": "tool", "tool_call_id": "b", "content": "rain"},
        {"role": "assistant", "content": "Rain.", "tool_calls": [call("a")]},
    ]


def test_calls_and_results_of_a_message() -> None:
    use = {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Ås"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "rain"}]}
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use]},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
    ]
    assert message(messages=turns)["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call("a")]},
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": None, "tool_calls": [call("a")]},
        {"role": "tool", "tool_call_id": "a", "content": ""},
    ]


def test_formats() -> None:
    assert response(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    wanted = {"type": "json_schema", "name": "place", "schema": PARAMETERS, "strict": True, "description": "Where."}
    json_schema = {"name": "place", "schema": PARAMETERS, "strict": True, "description": "Where."}
    assert response(text={"format": wanted})["response_format"] == {"type": "json_schema", "json_schema": json_schema}
    said = message(output_config={"format": {"type": "json_schema", "schema": PARAMETERS}})["response_format"]
    assert (said["type"], said["json_schema"]["schema"]) == ("json_schema", PARAMETERS)


@pytest.mark.parametrize(
    ("param", "said", "becomes"),
    [
        ("messages[2].content", "messages[2].content: no", ("input[2].content", "input[2].content: no")),
        ("tools[1].function.name", "too long", ("tools[1].name", "too long")),
        ("temperature", "temperature: messages", ("temperature", "temperature: messages")),
        (None, "messages", (None, "messages")),
    ],
)
def test_an_error_is_told_in_the_words_of_the_other_api(
    param: str | None, said: str, becomes: tuple[str | None, str]
) -> None:
    with pytest.raises(InvalidValue) as found, reworded((("messages", "input"), (".function.", "."))):
        raise InvalidValue(said, param=param)
    assert (found.value.param, found.value.message) == becomes
