"""Which family a template belongs to, and how a conversation with calls is put to a template that knows none."""

import json

import pytest

from server.api.tools.families import HERMES, LLAMA, MISTRAL, MISTRAL_NAMED, PROMPTED, Family, family_of
from server.api.tools.prompting import prompted
from tests.helpers.chat_templates import STYLES
from tests.helpers.tiny_text import TEMPLATE

TOOLS_LOOP = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "family"),
    [
        ("", PROMPTED),
        (TEMPLATE, PROMPTED),
        (STYLES["chatml"].source, PROMPTED),
        (STYLES["gemma"].source, PROMPTED),
        (STYLES["llama3"].source, PROMPTED),  # this one shows no tools
        (STYLES["thinking"].source, HERMES),
        (TOOLS_LOOP + "<tool_call>", HERMES),
        (TOOLS_LOOP + "<tool_call><function=", PROMPTED),
        (TOOLS_LOOP + "[AVAILABLE_TOOLS][TOOL_CALLS]", MISTRAL),
        (TOOLS_LOOP + "[TOOL_CALLS]name[ARGS]", MISTRAL_NAMED),
        (TOOLS_LOOP + '<|start_header_id|>{"name": x, "parameters": y}', LLAMA),
        (TOOLS_LOOP + "some other way", PROMPTED),
        ("<tool_call> without any t o o l s", PROMPTED),
    ],
)
def test_a_family_is_known_by_its_template(template: str, family: Family) -> None:
    assert family_of(template, {}) is family


def test_llama_is_known_by_its_token_too() -> None:
    assert family_of(TOOLS_LOOP + "<|start_header_id|>", {"<|python_tag|>": 5}) is LLAMA
    assert family_of(TOOLS_LOOP + "<|start_header_id|>", {}) is PROMPTED


SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "ü"}'}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def test_tools_are_told_of_in_the_system_message() -> None:
    (told, user) = prompted([USER], [TOOL])
    assert (told["role"], user) == ("system", USER)
    assert json.dumps(TOOL["function"]) in told["content"]
    assert "<tool_call>" in told["content"]


def test_a_system_message_that_is_there_comes_first() -> None:
    (told, _) = prompted([SYSTEM, USER], [TOOL])
    assert told["content"].startswith("Be brief.\n\nYou can call functions.")


def test_calls_and_what_they_brought_become_text() -> None:
    turns = [
        USER,
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "42", "tool_call_id": "1", "name": "f"},
    ]
    call = '<tool_call>\n{"name": "f", "arguments": {"a": "ü"}}\n</tool_call>'
    assert prompted(turns, None)[1:] == [
        {"role": "assistant", "content": f"I look.\n{call}\n{call}"},
        {"role": "user", "content": "<tool_response>\n42\n</tool_response>"},
    ]


def test_a_conversation_without_tools_stays_as_it_is() -> None:
    turns = [SYSTEM, USER, {"role": "assistant", "content": "ho"}, {"role": "tool", "content": "odd"}]
    assert prompted(turns, []) == turns
