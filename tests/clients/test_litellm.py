"""litellm, which speaks to every API through one function."""

import json
from typing import Any

import pytest

from tests.helpers.live_server import LiveServer


@pytest.fixture
def litellm() -> Any:
    module = pytest.importorskip("litellm")
    module.suppress_debug_info = True
    return module


CITIES = ("Ulm", "Köln")
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": CITIES}},
    "required": ["city"],
    "additionalProperties": False,
}
CALLING = {
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
}


def asked(server: LiveServer, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    base = {"api_base": f"{server.url}/v1", "api_key": "none", "max_tokens": 8, "temperature": 0, "num_retries": 0}
    return base | {"model": "openai/tiny", "messages": messages} | fields


def test_it_chats_and_streams_the_same(litellm: Any, server: LiveServer) -> None:
    whole = litellm.completion(**asked(server))
    assert whole.usage.completion_tokens == 8
    chunks = list(litellm.completion(**asked(server, stream=True, stream_options={"include_usage": True})))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 8


def test_it_completes_text(litellm: Any, server: LiveServer) -> None:
    fields = asked(server, model="text-completion-openai/tiny", prompt="once")
    del fields["messages"]
    whole = litellm.text_completion(**fields)
    assert whole.choices[0].finish_reason == "length"
    streamed = litellm.text_completion(**fields, stream=True)
    assert "".join(chunk.choices[0].text or "" for chunk in streamed) == whole.choices[0].text


def test_it_talks_anthropic_s_way(litellm: Any, server: LiveServer) -> None:
    fields = asked(server, model="anthropic/tiny", api_base=server.url)
    whole = litellm.completion(**fields)
    assert whole.choices[0].message.content == litellm.completion(**asked(server)).choices[0].message.content
    assert whole.choices[0].finish_reason == "length"


@pytest.mark.parametrize("way", ["openai", "anthropic"])
def test_it_gets_calls_whole_and_streamed(litellm: Any, server: LiveServer, way: str) -> None:
    base = server.url if way == "anthropic" else f"{server.url}/v1"
    fields = asked(server, model=f"{way}/tiny", api_base=base, max_tokens=200, **CALLING)
    whole = litellm.completion(**fields)
    assert whole.choices[0].finish_reason == "tool_calls"
    (call,) = whole.choices[0].message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in CITIES
    built = litellm.stream_chunk_builder(list(litellm.completion(**fields, stream=True)))
    (streamed,) = built.choices[0].message.tool_calls
    assert json.loads(streamed.function.arguments) == json.loads(call.function.arguments)


def test_it_goes_on_with_what_a_call_brought(litellm: Any, server: LiveServer) -> None:
    fields = asked(server, max_tokens=200, **CALLING)
    first = litellm.completion(**fields)
    message = first.choices[0].message
    brought = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    fields |= {"messages": [*fields["messages"], message, brought], "tool_choice": "auto", "max_tokens": 4}
    assert litellm.completion(**fields).usage.prompt_tokens > first.usage.prompt_tokens


def test_it_sends_schemas(litellm: Any, server: LiveServer) -> None:
    schema = {"name": "it", "strict": True, "schema": PARAMETERS}
    wanted = {"type": "json_schema", "json_schema": schema}
    said = litellm.completion(**asked(server, max_tokens=200, response_format=wanted)).choices[0].message.content
    assert json.loads(said)["city"] in CITIES


def test_it_uses_the_responses_api(litellm: Any, server: LiveServer) -> None:
    fields = asked(server, input="hi", max_output_tokens=16)  # fewer it raises to so many
    said = litellm.responses(**{name: fields[name] for name in fields if name not in ("messages", "max_tokens")})
    chat = litellm.completion(**asked(server, max_tokens=16))
    assert said.output[0].content[0].text == chat.choices[0].message.content


def test_it_reads_our_errors(litellm: Any, server: LiveServer) -> None:
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(**asked(server, temperature=7))
    with pytest.raises(litellm.NotFoundError, match="does not exist"):
        litellm.completion(**asked(server, model="openai/huge"))
