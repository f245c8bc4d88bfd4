"""How a chat request has its conversation put to the model."""

from typing import Any

import pytest

from model.tokenizer.chat import ChatTemplate
from tests.helpers.api_world import World, make_world, says
from tests.helpers.asgi import call
from tests.helpers.tiny_text import SPECIAL, ids_of, text_of

PATH = "/v1/chat/completions"
USER, ASSISTANT = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Sure, "}
TURN, END = 258, 259
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate!') }}"
    "{% endif %}[{{ m.role }}: {{ m.content }}]{% endfor %}{% if shout %}!{% endif %}"
)


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens=SPECIAL, named_tokens={"bos_token": "<bos>"})


async def prompt_of(world: World, *messages: dict[str, Any], **fields: Any) -> tuple[int, ...]:
    answered = await call(world.app, "POST", PATH, {"messages": list(messages)} | fields)
    assert answered.status == 200, answered.body
    return world.service.submitted[-1].prompt


async def error_of(world: World, *messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    answered = await call(world.app, "POST", PATH, {"messages": list(messages)} | fields)
    assert answered.status == 400, answered.body
    return answered.error


async def test_without_a_generation_prompt_the_prompt_ends_with_the_last_message() -> None:
    prompt = await prompt_of(make_world(), USER, add_generation_prompt=False)
    assert prompt == ids_of(256, TURN, "user\nhi", END)
    assert await prompt_of(make_world(), USER, add_generation_prompt=True) == await prompt_of(make_world(), USER)


@pytest.mark.parametrize("add", [{}, {"add_generation_prompt": False}])
async def test_the_last_message_can_go_on(add: dict[str, Any]) -> None:
    prompt = await prompt_of(make_world(), USER, ASSISTANT, continue_final_message=True, **add)
    assert prompt == ids_of(256, TURN, "user\nhi", END, TURN, "assistant\nSure, ")


async def test_special_tokens_in_a_message_that_goes_on_stay_text() -> None:
    message = {"role": "assistant", "content": "<|end|> and <|end"}
    prompt = await prompt_of(make_world(), USER, message, continue_final_message=True)
    assert prompt == ids_of(256, TURN, "user\nhi", END, TURN, "assistant\n", "<|end|> and <|end")


async def test_a_message_cannot_both_go_on_and_be_answered() -> None:
    error = await error_of(make_world(), USER, continue_final_message=True, add_generation_prompt=True)
    assert error["param"] == "continue_final_message"


async def test_a_message_that_ends_with_calls_cannot_go_on() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    error = await error_of(make_world(), USER, ASSISTANT | {"tool_calls": [call]}, continue_final_message=True)
    assert error["param"] == "messages[1].tool_calls"


@pytest.mark.parametrize(
    "source", ["{{ messages[0].content }}", "{% for m in messages %}{{ m.content * 2 }}{% endfor %}"]
)
async def test_a_template_that_does_not_write_the_last_message_cannot_go_on_with_it(source: str) -> None:
    error = await error_of(make_world(template=template(source)), USER, ASSISTANT, continue_final_message=True)
    assert "can't go on" in error["message"]


async def test_variables_reach_the_template_that_reads_them() -> None:
    world = make_world(template=template(ALTERNATING))
    assert text_of(await prompt_of(world, USER, chat_template_kwargs={"shout": True})) == "[user: hi]!"
    assert text_of(await prompt_of(world, USER, chat_template_kwargs={"shout": False})) == "[user: hi]"
    assert text_of(await prompt_of(world, USER, chat_template_kwargs={})) == "[user: hi]"


@pytest.mark.parametrize("name", ["whisper", "messages", "bos_token", "raise_exception", "m"])
async def test_a_variable_that_the_template_does_not_read_is_refused_with_those_that_it_does(name: str) -> None:
    error = await error_of(make_world(template=template(ALTERNATING)), USER, chat_template_kwargs={name: 1})
    assert error["param"] == f"chat_template_kwargs.{name}"
    assert error["message"].endswith("it reads shout")


async def test_special_tokens_in_variables_are_text() -> None:
    world = make_world(template=template("{{ shout }}{{ messages[0].content }}"))
    prompt = await prompt_of(world, USER, chat_template_kwargs={"shout": "<|end|>"})
    assert prompt == ids_of("<|end|>", "hi")


async def test_turns_of_one_role_in_a_row_are_joined_where_the_template_insists() -> None:
    world = make_world(template=template(ALTERNATING))
    messages = [USER, {"role": "user", "content": "there"}, ASSISTANT, ASSISTANT, USER]
    assert text_of(await prompt_of(world, *messages)) == "[user: hi\n\nthere][assistant: Sure, \n\nSure, ][user: hi]"


async def test_a_template_that_takes_them_gets_them_as_they_are() -> None:
    assert await prompt_of(make_world(), USER, USER) == ids_of(
        256, TURN, "user\nhi", END, TURN, "user\nhi", END, TURN, "assistant\n"
    )


async def test_what_a_template_refuses_even_then_is_refused_in_its_words() -> None:
    error = await error_of(make_world(template=template(ALTERNATING)), ASSISTANT, USER, USER)
    assert "alternate!" in error["message"]


async def test_a_request_s_own_template_takes_the_place_of_the_model_s() -> None:
    fields = {"chat_template": "{{ bos_token }}{{ messages[0].content }}<|end|>"}
    for chats in (True, False):
        world = make_world(says("ok"), trusts_templates=True, chats=chats)
        assert await prompt_of(world, USER, **fields) == ids_of(256, "hi", END)


async def test_a_request_s_own_template_needs_the_operator_s_word() -> None:
    error = await error_of(make_world(), USER, chat_template="{{ messages }}")
    assert (error["param"], error["code"]) == ("chat_template", "unsupported_value")
    assert "--trust-request-chat-template" in error["message"]


async def test_a_request_s_own_template_that_is_broken_is_refused() -> None:
    error = await error_of(make_world(trusts_templates=True), USER, chat_template="{% for %}")
    assert error["param"] == "chat_template"
    assert "does not parse" in error["message"]


async def test_a_request_s_own_template_decides_how_tools_are_shown() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    own = "{% for t in tools %}{{ t.function.name }}<tool_call>{% endfor %}"
    prompt = await prompt_of(make_world(trusts_templates=True), USER, tools=[tool], chat_template=own)
    assert text_of(prompt) == "f<tool_call>"
