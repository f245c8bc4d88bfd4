"""Tools and constraints over real sockets, through OpenAI's own client; with a tiny model, whose words are noise."""

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

import jsonschema
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, Field

from tests.helpers.asking import CHAT, COMPLETIONS
from tests.helpers.live_server import LiveServer, at_once
from tests.helpers.schemas import SCHEMAS

pytestmark = pytest.mark.e2e

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "How is the weather?"}]


class Weather(BaseModel):
    """How the weather is."""

    city: Literal["Ulm", "Köln"]
    days: Annotated[int, Field(ge=1, le=9)]


class Time(BaseModel):
    """What time it is."""

    zone: Literal["CET", "UTC"]


TOOLS = [openai.pydantic_function_tool(Weather), openai.pydantic_function_tool(Time)]


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_required_calls_come_parsed(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice="required", seed=3)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls
    for call in choice.message.tool_calls:
        assert isinstance(call.function.parsed_arguments, Weather | Time)


def test_a_stream_of_calls_puts_together_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "messages": MESSAGES,
        "tools": TOOLS,
        "tool_choice": "required",
        "seed": 4,
    }
    whole = client.chat.completions.create(**asked, n=2)
    names, arguments = dict[tuple[int, int], str](), dict[tuple[int, int], str]()
    for chunk in client.chat.completions.create(**asked, n=2, stream=True):
        for choice in chunk.choices:
            assert not choice.delta.content
            for part in choice.delta.tool_calls or ():
                place = (choice.index, part.index)
                assert part.function is not None
                if part.function.name:
                    assert (part.id, place not in names) != (None, False)
                    names[place] = part.function.name
                arguments[place] = arguments.get(place, "") + (part.function.arguments or "")
    for choice in whole.choices:
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
        places = [place for place in names if place[0] == choice.index]
        assert [(names[place], arguments[place]) for place in places] == calls
        assert calls


def test_its_stream_helper_parses_a_named_call(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "Time"}}
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        answer = stream.get_final_completion()
    assert [event.name for event in done] == ["Time"]
    calls = answer.choices[0].message.tool_calls
    assert calls
    assert isinstance(calls[0].function.parsed_arguments, Time)
    assert answer.choices[0].finish_reason == "tool_calls"


def test_the_conversation_goes_on_with_what_the_call_brought(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice="required", seed=5)
    made = first.choices[0].message
    assert made.tool_calls
    brought: list[Any] = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in made.tool_calls]
    history: list[Any] = [*MESSAGES, made.model_dump(exclude_none=True, exclude={"refusal"}), *brought]
    answer = client.chat.completions.create(model="tiny", messages=history, tools=TOOLS, max_tokens=8)
    assert answer.usage is not None
    assert first.usage is not None
    assert answer.usage.prompt_tokens > first.usage.prompt_tokens


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
def test_choices_under_a_constraint_with_stops_penalties_and_logprobs(
    server: LiveServer, path: str, stream: bool
) -> None:
    asked = {"messages": MESSAGES, "logprobs": True} if path == CHAT else {"prompt": "Number:", "logprobs": 1}
    fields = {"structured_outputs": {"regex": "[0-9]{3}-(yes|no)"}, "n": 4, "temperature": 1, "seed": 8, "stop": ["-n"]}
    fields |= {"repetition_penalty": 1.2, "frequency_penalty": 0.5, "min_tokens": 2, "max_tokens": 30, "stream": stream}
    got = server.request("POST", path, asked | fields)
    assert got.status == 200, got.body
    texts = [""] * 4
    for body in got.events()[:-1] if stream else [got.json()]:
        for choice in body["choices"]:
            said = choice.get("delta") or choice.get("message") or {}
            texts[choice["index"]] += choice.get("text") or said.get("content") or ""
            assert choice["finish_reason"] in (None, "stop")
    assert all(re.fullmatch("[0-9]{3}(-yes)?", text) for text in texts), texts


def test_eight_schemas_at_once_beside_free_answers_that_stay_as_they_are(server: LiveServer) -> None:
    free = {"prompt": "Free", "temperature": 0, "max_tokens": 40}
    alone = server.request("POST", COMPLETIONS, free).json()["choices"]
    chosen = list(SCHEMAS.values())[::4]
    bodies: list[dict[str, Any]] = [
        {
            "prompt": f"JSON {number}:",
            "temperature": number % 2,
            "seed": number,
            "max_tokens": 400,
            "response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}},
        }
        for number, schema in enumerate(chosen)
    ]
    answers = at_once(*(partial(server.request, "POST", COMPLETIONS, body) for body in (free, *bodies, free)))
    assert answers[0].json()["choices"] == answers[-1].json()["choices"] == alone
    for answer, schema in zip(answers[1:-1], chosen, strict=True):
        (choice,) = answer.json()["choices"]
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["text"]), schema, cls=jsonschema.Draft202012Validator)


def test_a_grammar_that_the_vocabulary_cannot_follow_is_a_400_also_streamed(server: LiveServer) -> None:
    for stream in (False, True):
        body = {"prompt": "x", "structured_outputs": {"grammar": "start: <|nope|>"}, "stream": stream}
        got = server.request("POST", COMPLETIONS, body)
        assert got.status == 400
        assert got.json()["error"]["message"] == (
            'structured_outputs.grammar: at 1(8): unknown special token: "<|nope|>"'
        )
