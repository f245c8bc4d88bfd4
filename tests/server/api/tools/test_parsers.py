"""Every family's parser: what is content, what are calls, the same however the text is cut into pieces."""

import json
from collections.abc import Iterable
from itertools import count

import pytest

from server.api.tools.calls import CallDelta, CallParser, joined
from server.api.tools.families import HERMES, LLAMA, MISTRAL, Family

W = '{"name": "weather", "arguments": {"city": "Ulm"}}'
T = '{"name":"time","arguments":{"zone":{"name":"CET"},"l":[1,"}"]}}'
ULM = ("weather", '{"city": "Ulm"}')
CET = ("time", '{"zone":{"name":"CET"},"l":[1,"}"]}')
P = '{"name": "weather", "parameters": {"city": "Ulm"}}'
NASTY = '{"name": "f", "arguments": {"a": "say \\"hi\\" \\\\", "b": "</tool_call>{[,]}", "c": -1.5e3, "ü🎉": null}}'
NASTY_ARGUMENTS = '{"a": "say \\"hi\\" \\\\", "b": "</tool_call>{[,]}", "c": -1.5e3, "ü🎉": null}'

Calls = list[tuple[str, str]]
CASES: list[tuple[Family, str, str, Calls]] = [
    # text, content, calls
    (HERMES, "Just text.", "Just text.", []),
    (HERMES, "", "", []),
    (HERMES, f"<tool_call>\n{W}\n</tool_call>", "", [ULM]),
    (HERMES, f"<tool_call>{W}</tool_call>", "", [ULM]),
    (HERMES, f"Let me see.\n\n<tool_call>\n{W}\n</tool_call>", "Let me see.", [ULM]),
    (HERMES, f"<tool_call>\n{W}\n</tool_call>\n<tool_call>\n{T}\n</tool_call>\n", "", [ULM, CET]),
    (HERMES, f"<tool_call>[{W}, {T}]</tool_call>", "", [ULM, CET]),
    (HERMES, f"<tool_call>\n{W}\n<tool_call>\n{T}", "", [ULM, CET]),
    (HERMES, f"<tool_call>{NASTY}</tool_call>", "", [("f", NASTY_ARGUMENTS)]),
    (HERMES, '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [("f", '{"a": 1}')]),
    (HERMES, '<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
    (HERMES, '<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [("f", "{}")]),
    (HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("f", '{"a": 1}')]),
    (HERMES, '<tool_call>{"id": 7, "name": "f", "arguments": {}}</tool_call>', "", [("f", "{}")]),
    (HERMES, '<tool_call>{"na\\u006de": "f\\u00fc", "arguments": {}}</tool_call>', "", [("fü", "{}")]),
    (HERMES, '<tool_call>\n{"name": "f", "arguments": {"a": ', "", [("f", '{"a": ')]),  # cut by max_tokens
    (HERMES, '<tool_call>\n{"na', "", []),
    (HERMES, "a <tool_cal", "a <tool_cal", []),
    (HERMES, "1 < 2 <tool> </tool_call> \n", "1 < 2 <tool> </tool_call> \n", []),
    (HERMES, '<tool_call>{"a": 1}</tool_call>x', '{"a": 1}x', []),
    (HERMES, f"<tool_call>{W}</tool_call> and more", " and more", [ULM]),
    (LLAMA, "Just text.", "Just text.", []),
    (LLAMA, P, "", [ULM]),
    (LLAMA, f"\n{P}\n", "", [ULM]),
    (LLAMA, f"<|python_tag|>{P}", "", [ULM]),
    (LLAMA, f"{P}; {T}", "", [ULM, CET]),
    (LLAMA, f"{P}\n{T};", "", [ULM, CET]),
    (LLAMA, '{"type": "function", "name": "f", "parameters": {}}', "", [("f", "{}")]),
    (LLAMA, '{"answer": 42, "name": "x"}', '{"answer": 42, "name": "x"}', []),
    (LLAMA, '{"answer": [1, ', '{"answer": [1, ', []),
    (LLAMA, '{"parameters": {"a": 1}}', '{"parameters": {"a": 1}}', []),
    (LLAMA, "{not json} at all", "{not json} at all", []),
    (LLAMA, f"The call is {P}", f"The call is {P}", []),
    (LLAMA, f"{P} done", " done", [ULM]),
    (LLAMA, "<|python", "<|python", []),
    (MISTRAL, "Just text.", "Just text.", []),
    (MISTRAL, f"[TOOL_CALLS] [{W}]", "", [ULM]),
    (MISTRAL, f"[TOOL_CALLS][{W}, {T}]", "", [ULM, CET]),
    (MISTRAL, f"Well: [TOOL_CALLS] [{W}]", "Well:", [ULM]),
    (MISTRAL, '[TOOL_CALLS]weather[ARGS]{"city": "Ulm"}', "", [ULM]),
    (MISTRAL, '[TOOL_CALLS]weather{"city": "Ulm"}', "", [ULM]),
    (MISTRAL, f'[TOOL_CALLS]weather[ARGS]{{"city": "Ulm"}}[TOOL_CALLS]time[ARGS]{CET[1]}', "", [ULM, CET]),
    (MISTRAL, '[TOOL_CALLS] [{"name": "f", "arguments": {"a"', "", [("f", '{"a"')]),
    (MISTRAL, "[TOOL", "[TOOL", []),
]


def parser_of(family: Family) -> CallParser:
    numbers = count()
    return family.parser(lambda: f"id{next(numbers)}")


def read(family: Family, pieces: Iterable[str]) -> tuple[str, Calls, list[CallDelta]]:
    parser, text, deltas = parser_of(family), "", list[CallDelta]()
    for parsed in [*map(parser.push, pieces), parser.flush()]:
        text += parsed.text
        deltas += parsed.calls
    return text, [(call.name, call.arguments) for call in joined(deltas)], deltas


@pytest.mark.parametrize(("family", "text", "content", "calls"), CASES)
def test_content_and_calls_are_told_apart(family: Family, text: str, content: str, calls: Calls) -> None:
    assert read(family, [text])[:2] == (content, calls)


@pytest.mark.parametrize(("family", "text", "content", "calls"), CASES)
def test_it_does_not_matter_where_the_text_is_cut(family: Family, text: str, content: str, calls: Calls) -> None:
    for pieces in ([text[:at], text[at:]] for at in range(1, len(text))):
        assert read(family, pieces)[:2] == (content, calls), pieces
    for size in (1, 2, 3, 7):
        assert read(family, [text[i : i + size] for i in range(0, len(text), size)])[:2] == (content, calls), size


@pytest.mark.parametrize(("family", "text", "content", "calls"), CASES)
def test_a_call_begins_with_its_id_and_name_and_goes_on_with_arguments_only(
    family: Family, text: str, content: str, calls: Calls
) -> None:
    deltas = read(family, text)[2]
    begun: list[str | None] = []
    for delta in deltas:
        if delta.id is None:
            assert (delta.name, delta.index) == (None, len(begun) - 1)
            assert delta.arguments
        else:
            assert (delta.arguments, delta.index) == ("", len(begun))
            begun.append(delta.id)
    assert begun == [f"id{i}" for i in range(len(calls))]


def test_arguments_stream_as_they_come() -> None:
    parser = parser_of(HERMES)
    parser.push('<tool_call>{"name": "f", "arguments": {"te')
    assert [call.arguments for call in parser.push("xt").calls] == ["xt"]


def test_content_streams_as_it_comes_but_for_what_may_begin_a_call() -> None:
    parser = parser_of(HERMES)
    assert parser.push("Hello <to").text == "Hello"
    assert parser.push("day>, ").text == " <today>,"
    assert parser.flush().text == " "


@pytest.mark.parametrize("family", [HERMES, LLAMA, MISTRAL])
def test_parsing_is_linear_in_the_length_of_arguments(family: Family) -> None:
    """100,000 characters in pieces of 5 take well under a second; re-reading them for each piece would take minutes."""
    long = json.dumps({"name": "f", "parameters": {"a": "x" * 100_000}})
    text = {"hermes": f"<tool_call>{long}</tool_call>", "llama": long, "mistral": f"[TOOL_CALLS] [{long}]"}[family.name]
    (call,) = read(family, (text[i : i + 5] for i in range(0, len(text), 5)))[1]
    assert len(call[1]) == 100_000 + len('{"a": ""}')
