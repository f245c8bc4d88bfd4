"""langchain's ChatOpenAI and OpenAI, as agents use them."""

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from tests.helpers.live_server import LiveServer


@pytest.fixture
def langchain() -> Any:
    return pytest.importorskip("langchain_openai")


def settings(server: LiveServer) -> dict[str, Any]:
    return {"model": "tiny", "base_url": f"{server.url}/v1", "api_key": "none", "temperature": 0, "max_retries": 0}


def test_it_chats_and_streams_the_same(langchain: Any, server: LiveServer) -> None:
    chat = langchain.ChatOpenAI(**settings(server), max_tokens=8, stream_usage=True)
    whole = chat.invoke([("system", "Be brief."), ("human", "hi")])
    assert whole.usage_metadata["output_tokens"] == 8
    assert whole.response_metadata["finish_reason"] == "length"
    chunks = list(chat.stream([("system", "Be brief."), ("human", "hi")]))
    assert "".join(chunk.content for chunk in chunks) == whole.content


def test_it_batches(langchain: Any, server: LiveServer) -> None:
    chat = langchain.ChatOpenAI(**settings(server), max_tokens=4)
    one, other = chat.batch(["one", "two"])
    assert (one.content, other.content) == (chat.invoke("one").content, chat.invoke("two").content)


def test_it_uses_the_responses_api(langchain: Any, server: LiveServer) -> None:
    chat = langchain.ChatOpenAI(**settings(server), max_tokens=8, use_responses_api=True)
    plain = langchain.ChatOpenAI(**settings(server), max_tokens=8)
    said = chat.invoke("hi")
    assert said.text == plain.invoke("hi").content
    assert "".join(chunk.text for chunk in chat.stream("hi")) == said.text


class Weather(BaseModel):
    """How the weather is."""

    model_config = ConfigDict(extra="forbid")

    city: Literal["Ulm", "Köln"]


def test_it_binds_tools_whole_and_streamed(langchain: Any, server: LiveServer) -> None:
    model = langchain.ChatOpenAI(**settings(server), max_tokens=200)
    bound = model.bind_tools([Weather], tool_choice="any", parallel_tool_calls=False)
    said = bound.invoke("hi")
    (call,) = said.tool_calls
    assert call["name"] == "Weather"
    assert Weather.model_validate(call["args"])
    first, *rest = bound.stream("hi")
    assert sum(rest, first).tool_calls[0]["args"] == call["args"]
    brought = {"role": "tool", "tool_call_id": call["id"], "content": "rain"}
    history = [{"role": "user", "content": "hi"}, said, brought]
    again = model.bind_tools([Weather]).bind(max_tokens=4).invoke(history)
    assert again.usage_metadata["input_tokens"] > said.usage_metadata["input_tokens"]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_it_gets_structured_output(langchain: Any, server: LiveServer, method: str) -> None:
    chat = langchain.ChatOpenAI(**settings(server), max_tokens=200)
    assert isinstance(chat.with_structured_output(Weather, method=method).invoke("hi"), Weather)


def test_it_completes_text(langchain: Any, server: LiveServer) -> None:
    model = langchain.OpenAI(**settings(server), max_tokens=8)
    text = model.invoke("once")
    assert text
    assert "".join(model.stream("once")) == text


def test_it_sends_and_reads_logprobs(langchain: Any, server: LiveServer) -> None:
    chat = langchain.ChatOpenAI(**settings(server), max_tokens=3, logprobs=True, top_logprobs=2)
    content = chat.invoke("hi").response_metadata["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in content] == [2, 2, 2]
