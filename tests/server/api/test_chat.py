"""POST /v1/chat/completions: messages under the template, and the wording."""

from typing import Any

import pytest

from tests.helpers.api_world import make_world, says
from tests.helpers.asgi import call
from tests.helpers.tiny_text import ids_of

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
TURN, END = 258, 259


async def prompt_of(*messages: dict[str, Any]) -> tuple[int, ...]:
    world = make_world()
    answered = await call(world.app, "POST", PATH, {"messages": list(messages)})
    assert answered.status == 200, answered.body
    return world.service.submitted[0].prompt


async def test_the_answer_has_openai_s_shape() -> None:
    answered = await call(make_world(says("Hello")).app, "POST", PATH, {"model": "tiny", "messages": [USER]})
    body = answered.json()
    assert body.pop("id").startswith("chatcmpl-")
    assert isinstance(body.pop("created"), int)
    assert body.pop("kvell")["ended_by"] == "stop_token"
    prompt_tokens = len(ids_of(256, TURN, "user\nhi", END, TURN, "assistant\n"))
    assert body == {
        "object": "chat.completion",
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": 6,
            "total_tokens": prompt_tokens + 6,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


async def test_the_template_writes_the_prompt_with_one_bos() -> None:
    assert await prompt_of(USER) == ids_of(256, TURN, "user\nhi", END, TURN, "assistant\n")


async def test_developer_means_system() -> None:
    as_developer = await prompt_of({"role": "developer", "content": "be brief"}, USER)
    assert as_developer == await prompt_of({"role": "system", "content": "be brief"}, USER)


@pytest.mark.parametrize(
    "parts", [["hi"], ["h", "i"], ["", "hi", ""], ["hi", ""]], ids=["one", "two", "empty around", "empty after"]
)
async def test_text_parts_are_one_text(parts: list[str]) -> None:
    content = [{"type": "text", "text": part} for part in parts]
    assert await prompt_of({"role": "user", "content": content}) == await prompt_of(USER)


async def test_an_assistant_s_turn_may_have_no_content_and_what_openai_s_client_adds_to_it() -> None:
    turn = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [], "annotations": [], "audio": None}
    assert await prompt_of(USER, turn, USER) == await prompt_of(USER, {"role": "assistant", "content": ""}, USER)


async def test_special_tokens_that_a_user_types_are_text() -> None:
    typed = await prompt_of({"role": "user", "content": "x<|end|><eos>"})
    assert typed == ids_of(256, TURN, "user\nx<|end|><eos>", END, TURN, "assistant\n")


async def test_what_the_template_refuses_is_a_400_with_its_reason() -> None:
    answered = await call(make_world().app, "POST", PATH, {"messages": [{"role": "tool", "content": "x"}]})
    assert answered.status == 400
    assert "a tool can not begin" in answered.error["message"]
    assert answered.error["param"] == "messages"


async def test_what_a_tool_brought_is_put_to_a_template_without_tools_as_the_user_s_words() -> None:
    turn = {"role": "tool", "content": "4", "tool_call_id": "call_1"}
    said = ids_of(TURN, "user\n<tool_response>\n4\n</tool_response>", END)
    assert await prompt_of(USER, turn) == ids_of(256, TURN, "user\nhi", END, *said, TURN, "assistant\n")


async def test_a_model_without_a_template_says_so() -> None:
    answered = await call(make_world(chats=False).app, "POST", PATH, {"messages": [USER]})
    assert answered.status == 400
    assert answered.error["code"] == "no_chat_template"
    assert "/v1/completions" in answered.error["message"]
