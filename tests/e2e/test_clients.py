"""OpenAI's and Anthropic's own Python clients against a whole server; other projects' are in tests/clients."""

from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import openai
import pytest
from pydantic import BaseModel

from tests.helpers.live_server import LiveServer

pytestmark = pytest.mark.e2e

USER: Any = [{"role": "user", "content": "hi"}]
SHORT: dict[str, Any] = {"temperature": 0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def ours(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def claude(server: LiveServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def text(ours: openai.OpenAI) -> str:
    """What a chat says; every other way of asking the same must say it too."""
    whole = ours.chat.completions.create(model="tiny", messages=USER, max_tokens=10, **SHORT)
    return whole.choices[0].message.content or ""


class Answer(BaseModel):
    ok: bool
    kind: Literal["a", "b"]


# OpenAI


def test_its_responses_say_the_same_whole_and_streamed(ours: openai.OpenAI, text: str) -> None:
    asked: dict[str, Any] = {"model": "tiny", "input": "hi", "max_output_tokens": 10, "store": False} | SHORT
    whole = ours.responses.create(**asked)
    assert (whole.output_text, whole.status) == (text, "incomplete")
    events = list(ours.responses.create(**asked, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.usage == whole.usage


def test_its_responses_go_on_from_the_items_of_the_last_one(ours: openai.OpenAI) -> None:
    first = ours.responses.create(model="tiny", input="hi", max_output_tokens=10, **SHORT)
    turns = [*USER, *first.output, {"role": "user", "content": "and?"}]
    second = ours.responses.create(model="tiny", input=turns, max_output_tokens=10, **SHORT)
    messages = [*USER, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "and?"}]
    chat = ours.chat.completions.create(model="tiny", messages=messages, max_tokens=10, **SHORT)
    assert second.output_text == chat.choices[0].message.content


def test_it_parses_structured_outputs_of_both_apis(ours: openai.OpenAI) -> None:
    chat = ours.chat.completions.parse(model="tiny", messages=USER, max_tokens=200, response_format=Answer, seed=1)
    assert isinstance(chat.choices[0].message.parsed, Answer)
    response = ours.responses.parse(model="tiny", input="hi", max_output_tokens=200, text_format=Answer)
    assert isinstance(response.output_parsed, Answer)


def test_its_stream_helpers_put_the_parsed_answer_together(ours: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "temperature": 0}
    with ours.chat.completions.stream(**asked, messages=USER, max_tokens=200, response_format=Answer) as chat:
        kinds = {event.type for event in chat}
    with ours.responses.stream(**asked, input="hi", max_output_tokens=200, text_format=Answer) as response:
        response.until_done()
    assert {"content.delta", "content.done"} <= kinds
    parsed = chat.get_final_completion().choices[0].message.parsed
    assert isinstance(parsed, Answer)
    assert response.get_final_response().output_parsed == parsed


def test_it_learns_what_is_not_served(ours: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as found:
        ours.embeddings.create(model="tiny", input="hi")
    assert found.value.code == "unsupported_endpoint"
    with pytest.raises(openai.BadRequestError) as found:
        ours.responses.create(model="tiny", input="hi", previous_response_id="resp_1")
    assert found.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError) as found:
        ours.responses.retrieve("resp_1")
    assert found.value.code == "unsupported_endpoint"


def test_a_stream_that_someone_cancels_raises_its_error(ours: openai.OpenAI, server: LiveServer) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": USER, "max_tokens": 1500, "stream": True} | SHORT
    stream = ours.chat.completions.create(**asked, extra_headers={"x-request-id": "mine"})
    next(iter(stream))
    assert stream.response.headers["x-request-id"] == "mine"
    assert server.request("DELETE", "/v1/requests/mine").status == 200
    with pytest.raises(openai.APIError, match="Cancelled"):
        list(stream)


# Anthropic


def test_claude_s_client_gets_a_message(claude: anthropic.Anthropic, text: str) -> None:
    said = claude.messages.create(model="tiny", max_tokens=10, messages=USER, extra_body=LIKE)
    assert [block.text for block in said.content if block.type == "text"] == [text]
    assert said.stop_reason == "max_tokens"


LIKE = {"temperature": 0, "ignore_eos": True}


def test_claude_s_client_streams_the_same(claude: anthropic.Anthropic, text: str) -> None:
    with claude.messages.stream(model="tiny", max_tokens=10, messages=USER, extra_body=LIKE) as stream:
        assert "".join(stream.text_stream) == text
        final = stream.get_final_message()
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 10)


WEATHER: Any = {
    "name": "weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Ulm", "Köln"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def test_claude_s_client_gets_calls_whole_and_streamed_and_goes_on(claude: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 200, "messages": USER, "tools": [WEATHER]}
    asked |= {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "extra_body": {"temperature": 0}}
    said = claude.messages.create(**asked)
    (call,) = (block for block in said.content if block.type == "tool_use")
    assert (said.stop_reason, call.name) == ("tool_use", "weather")
    assert call.input in ({"city": "Ulm"}, {"city": "Köln"})
    with claude.messages.stream(**asked) as stream:
        assert [block.input for block in stream.get_final_message().content if block.type == "tool_use"] == [call.input]
    brought = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    turns: Any = [*USER, {"role": "assistant", "content": said.content}, {"role": "user", "content": [brought]}]
    again = claude.messages.create(**asked | {"messages": turns, "max_tokens": 4, "tool_choice": {"type": "auto"}})
    read = [it.usage.input_tokens + (it.usage.cache_read_input_tokens or 0) for it in (said, again)]
    assert read[1] > read[0]


@pytest.mark.parametrize("streamed", [False, True])
def test_claude_s_client_has_a_message_go_on(claude: anthropic.Anthropic, ours: openai.OpenAI, streamed: bool) -> None:
    turns: Any = [*USER, {"role": "assistant", "content": "So, "}]
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 10, "messages": turns, "extra_body": LIKE}
    if streamed:
        with claude.messages.stream(**asked) as stream:
            said = "".join(stream.text_stream)
    else:
        said = "".join(block.text for block in claude.messages.create(**asked).content if block.type == "text")
    body = {"continue_final_message": True, "ignore_eos": True}
    chat = ours.chat.completions.create(model="tiny", messages=turns, max_tokens=10, temperature=0, extra_body=body)
    assert said == chat.choices[0].message.content


def test_claude_s_client_counts_tokens(claude: anthropic.Anthropic) -> None:
    counted = claude.messages.count_tokens(model="tiny", messages=USER, system="Be brief.").input_tokens
    usage = claude.messages.create(model="tiny", max_tokens=1, messages=USER, system="Be brief.").usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_claude_s_client_reads_our_errors(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        claude.messages.create(model="tiny", max_tokens=0, messages=USER)
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        claude.messages.create(model="huge", max_tokens=1, messages=USER)
    with pytest.raises(anthropic.BadRequestError, match="thinking"):
        claude.messages.create(
            model="tiny", max_tokens=9, messages=USER, thinking={"type": "enabled", "budget_tokens": 1024}
        )
