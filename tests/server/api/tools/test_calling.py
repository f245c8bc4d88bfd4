"""Tools in a chat request: what the answer must follow then, and what is refused."""

import json
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import pytest
from llguidance import LLMatcher

from model.sampling_params import SamplingParams
from server.api.constraints import constraint_of
from server.api.fields import parse
from server.api.tools.calling import Calling, calling_of
from server.api.tools.families import HERMES, LLAMA, MISTRAL, MISTRAL_NAMED, Family
from server.api.types import ChatBody
from server.engine.errors import InvalidValue, RequestError
from server.engine.grammar import grammar_of
from server.engine.request import Constraint, Request
from server.engine.vocabulary import Vocabulary, vocabulary_of
from tests.helpers.tiny_text import SPECIAL, TinyTokenizer

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "How it is",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"$ref": "#/$defs/days"}},
            "required": ["city"],
            "additionalProperties": False,
            "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
        },
    },
}
TIME = {"type": "function", "function": {"name": "time"}}
NAMED = {"type": "function", "function": {"name": "time"}}
MARKED = {"[TOOL_CALLS]": 258, "<|python_tag|>": 259}  # as if the tiny tokenizer's special tokens were these


def calling(
    family: Family = HERMES,
    *,
    tools: Any = (WEATHER, TIME),
    special: Mapping[str, int] = MappingProxyType({}),
    **fields: Any,
) -> Any:
    fields |= {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": list(tools) if isinstance(tools, tuple) else tools,
    }
    body = parse(fields, ChatBody)
    return calling_of(body, constraint_of(body), family, special)


@cache
def vocabulary() -> Vocabulary:
    return vocabulary_of(TinyTokenizer(), frozenset({257}))


def follows(constraint: Constraint, text: str, *, special: Mapping[str, int] = MappingProxyType({})) -> bool:
    """Whether an answer with this text may end there; special tokens' texts are those tokens."""
    matcher = LLMatcher(vocabulary().tokens, grammar_of(constraint), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    ids: list[int] = []
    while text:
        mark = next((mark for mark in special if text.startswith(mark)), "")
        ids += [special[mark]] if mark else text[0].encode()
        text = text[len(mark or text[0]) :]
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def constraint(*args: Any, **fields: Any) -> Constraint:
    made = calling(*args, **fields)
    assert made.constraint is not None
    found: Constraint = made.constraint
    return found


CALL, TIME_CALL = '{"name": "weather", "arguments": {"city": "Ulm", "days": 3}}', '{"name":"time","arguments":{}}'
ONE = f"<tool_call>\n{CALL}\n</tool_call>"
TWO = f"{ONE}\n<tool_call>\n{TIME_CALL}\n</tool_call>"
WRONG = [
    "text",
    "",
    ONE[:-1],
    ONE.replace("3", "10"),
    ONE.replace("Ulm", 'Ulm", "x": "y'),
    ONE.replace("weather", "wether"),
    ONE.replace(', "days": 3', "").replace('"city": "Ulm"', ""),
    f"{ONE} and text",
]


def test_required_means_calls_and_nothing_else() -> None:
    required = constraint(tool_choice="required")
    assert follows(required, ONE)
    assert follows(required, TWO)
    assert [text for text in WRONG if follows(required, text)] == []


def test_one_call_at_most_where_they_must_not_be_parallel() -> None:
    alone = constraint(tool_choice="required", parallel_tool_calls=False)
    assert follows(alone, ONE)
    assert not follows(alone, TWO)


def test_a_named_function_is_called_once() -> None:
    named = constraint(tool_choice=NAMED)
    assert follows(named, f"<tool_call>\n{TIME_CALL}\n</tool_call>")
    assert not follows(named, ONE)
    assert not follows(named, f"<tool_call>\n{TIME_CALL}\n</tool_call>\n<tool_call>\n{TIME_CALL}\n</tool_call>")


def test_a_function_without_parameters_takes_none() -> None:
    assert not follows(
        constraint(tool_choice=NAMED), '<tool_call>\n{"name": "time", "arguments": {"a": 1}}\n</tool_call>'
    )


@pytest.mark.parametrize(
    ("family", "special", "good", "bad"),
    [
        (LLAMA, {}, CALL.replace("arguments", "parameters"), CALL),
        (LLAMA, MARKED, (CALL + "; " + TIME_CALL).replace("arguments", "parameters"), "text"),
        (MISTRAL, {}, f"[TOOL_CALLS][{CALL}]", f"[TOOL_CALLS]{CALL}"),
        (MISTRAL, MARKED, f"[TOOL_CALLS][{CALL}, {TIME_CALL}]", f"[{CALL}]"),
        (
            MISTRAL_NAMED,
            {},
            '[TOOL_CALLS]weather[ARGS]{"city": "Ulm"}[TOOL_CALLS]time[ARGS]{}',
            "[TOOL_CALLS]time[ARGS]",
        ),
        (
            MISTRAL_NAMED,
            MARKED,
            '[TOOL_CALLS]weather[ARGS]{"city": "Ulm", "days": 9}',
            '[TOOL_CALLS]time[ARGS]{"a": 1}',
        ),
    ],
)
def test_every_family_s_form_can_be_required(family: Family, special: dict[str, int], good: str, bad: str) -> None:
    required = constraint(family, special=special, tool_choice="required")
    assert follows(required, good, special=special)
    assert not follows(required, bad, special=special)


@pytest.mark.parametrize(
    ("family", "special", "one"),
    [
        (HERMES, {}, ONE),
        (MISTRAL, {}, f"[TOOL_CALLS][{CALL}]"),
        (MISTRAL, MARKED, f"[TOOL_CALLS][{CALL}]"),
        (MISTRAL_NAMED, MARKED, '[TOOL_CALLS]weather[ARGS]{"city": "Ulm", "days": 3}'),
    ],
)
def test_strict_calls_follow_their_schema_and_text_stays_free(
    family: Family, special: dict[str, int], one: str
) -> None:
    strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
    auto = constraint(family, special=special, tools=[strict, TIME])
    for text in ("", "Just text, {braces} <tags> and [brackets].\nTwo lines. 🎉", one, f"I look.\n{one}"):
        assert follows(auto, text, special=special), text
    assert not follows(auto, one.replace("3", "10"), special=special)


def test_llama_s_strict_calls_are_answers_that_begin_with_a_brace() -> None:
    strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
    auto = constraint(LLAMA, tools=[strict])
    assert follows(auto, "Text with {braces}")
    assert follows(auto, CALL.replace("arguments", "parameters"))
    assert not follows(auto, '{"a": 1}')


def test_with_a_schema_for_content_the_answer_is_that_or_calls() -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    either = constraint(response_format=wanted)
    assert follows(either, '{"ok": true}')
    assert follows(either, ONE)
    assert not follows(either, "text")


def test_without_a_need_the_answer_is_not_constrained() -> None:
    assert calling(tool_choice="auto").constraint is None
    assert calling().constraint is None
    assert calling(parallel_tool_calls=True).constraint is None


@pytest.mark.parametrize("fields", [{"tool_choice": "none"}, {"tools": ()}])
def test_without_tools_or_with_none_no_calls_are_looked_for(fields: dict[str, Any]) -> None:
    assert calling(**fields) is None


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tools": [], "tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tools": [], "tool_choice": NAMED}, "tool_choice", "no tools"),
        ({"tools": [WEATHER], "tool_choice": NAMED}, "tool_choice", "'time'"),
        ({"tool_choice": "maybe"}, "tool_choice", "required"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "function"),
        ({"tool_choice": {"type": "function", "function": {"name": "time"}, "x": 1}}, "tool_choice", "function"),
        ({"tools": [TIME, TIME]}, "tools[1].function.name", "two functions"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools", "not served"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "required"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "pattern"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "params": {}}}]},
            "tools[0].function.params",
            "Unknown",
        ),
        ({"tools": [TIME] * 129}, "tools", "128"),
        ({"tools": "all"}, "tools", "list"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "boolean"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}]},
            "tools[0].function.parameters",
            "object",
        ),
        (
            {
                "tools": [
                    TIME,
                    {
                        "type": "function",
                        "function": {"name": "a", "parameters": {"properties": {"x": {"not": {}}}}},
                    },
                ],
                "tool_choice": "required",
            },
            "tools[1].function.parameters.properties.x",
            "not",
        ),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, "structured_outputs.grammar", "tool"),
    ],
)
def test_tools_that_make_no_sense_are_refused_by_name(fields: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        calling(**fields)
    assert caught.value.param == param
    assert words in caught.value.message


def test_a_schema_that_nobody_must_follow_may_be_any() -> None:
    odd = {"type": "function", "function": {"name": "a", "parameters": {"properties": {"x": {"not": {}}}}}}
    assert calling(tools=[odd]).constraint is None


def test_only_marks_that_are_special_tokens_are_revealed() -> None:
    assert calling(MISTRAL).reveal == {}
    assert calling(MISTRAL, special=MARKED).reveal == {258: b"[TOOL_CALLS]"}


def request(prompt: tuple[int, ...] = (1,), *, seed: int = 5, choice: int = 0) -> Request:
    return Request("r", prompt, 9, SamplingParams(seed=seed, choice=choice))


def ids_in(made: Calling, of: Request, text: str) -> list[str]:
    return [delta.id for delta in made.parser(of).push(text).calls if delta.id]


def test_ids_are_unlike_any_other_answer_s_and_the_same_when_it_is_made_again() -> None:
    made = calling()
    answers = [request(), request((1, 2)), request(seed=6), request(choice=1)]
    ids = [ids_in(made, each, TWO) for each in answers]
    assert len({id for each in ids for id in each}) == 8
    assert ids_in(made, request(), TWO) == ids[0]
    assert all(id.startswith("call_") and len(id) == 29 for id in ids[0])


def test_mistral_s_ids_are_nine_letters_and_digits() -> None:
    (id,) = ids_in(calling(MISTRAL), request(), f"[TOOL_CALLS][{CALL}]")
    assert len(id) == 9
    assert id.isalnum()


def test_the_tools_are_shown_as_they_were_sent() -> None:
    assert json.loads(json.dumps(calling().shown)) == [WEATHER, TIME]
    assert not SPECIAL.keys() & {"[TOOL_CALLS]"}


def test_a_bad_schema_is_an_invalid_value() -> None:
    with pytest.raises(InvalidValue):
        calling(tools=[{"type": "function", "function": {"name": "a", "parameters": {"type": "string"}}}])
