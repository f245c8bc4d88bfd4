"""litellm, which speaks to every API through one function."""

from typing import Any

import pytest

from tests.helpers.live_server import LiveServer


@pytest.fixture
def litellm() -> Any:
    module = pytest.importorskip("litellm")
    module.suppress_debug_info = True
    return module


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


def test_it_reads_our_errors(litellm: Any, server: LiveServer) -> None:
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(**asked(server, temperature=7))
    with pytest.raises(litellm.NotFoundError, match="does not exist"):
        litellm.completion(**asked(server, model="openai/huge"))
