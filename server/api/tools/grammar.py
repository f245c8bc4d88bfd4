"""Calls as a grammar, for answers that must be calls, or whose calls must follow their functions' schemas.

Lark, in llguidance's dialect. Knows the outlines of the families' forms; the families themselves are data elsewhere.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from server.api.tools.schema import arguments_schema, call_schema
from server.api.types.tools import FunctionSpec
from server.engine.grammar import options_of

Mark = Callable[[str], str]  # text of a special token, or of no token, -> how a rule refers to it


@dataclass(frozen=True, slots=True)
class Form:
    """How calls are written: prefix, then each call with open before and close behind it, `between` them, then suffix.

    Each is a list of literal texts; those in `marks` may be special tokens. key is that of the arguments; None: a call
    is its function's name, `args`, and the arguments. trigger is the first text of every call, where there is one:
    before it an answer may have content. Without it an answer is content exactly when it doesn't begin with a brace.
    """

    prefix: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    key: str | None = "arguments"
    args: str = ""
    trigger: str | None = None
    marks: tuple[str, ...] = ()


def calls_grammar(
    form: Form, functions: Sequence[FunctionSpec], mark: Mark, *, parallel: bool, content: str | None = None
) -> str:
    """An answer of calls to these functions.

    content: what else the answer may be, as the body of a rule; "" for free text, which calls may follow; None: it must
    be calls.
    """
    item = _sequence(form, (*form.open, "", *form.close), mark)
    more = f"({_sequence(form, form.between, mark)} item)*" if parallel else ""
    rules = [f"calls: {_sequence(form, form.prefix, mark)} item {more} {_sequence(form, form.suffix, mark)}"]
    rules.append(f"item: {item}")
    rules.append("call: " + " | ".join(f"call_{i}" for i in range(len(functions))))
    rules += [f"call_{i}: {_call(form, function, mark)}" for i, function in enumerate(functions)]
    if content == "":
        rules = [*_free(form, mark, more), *rules]
    elif content is not None:
        rules = ["start: content | calls", f"content: {content}", *rules]
    else:
        rules = ["start: calls", *rules]
    return "\n".join(rules)


def _sequence(form: Form, parts: Sequence[str], mark: Mark) -> str:
    """Literals and marks of a rule; "" stands for the call."""
    words = (mark(part) if part in form.marks else json.dumps(part) if part else "call" for part in parts)
    return " ".join(words)


def _call(form: Form, function: FunctionSpec, mark: Mark) -> str:
    if form.key is not None:
        return _json(call_schema(function, form.key))
    return f"{json.dumps(function.name)} {mark(form.args)} {_json(arguments_schema(function))}"


def _json(schema: dict[str, Any]) -> str:
    return f"%json {json.dumps(options_of(schema), ensure_ascii=False)}"


def _free(form: Form, mark: Mark, more: str) -> list[str]:
    """Content, then perhaps calls. From the trigger on, only calls are possible."""
    if form.trigger is None:
        return ["start: text | calls", r"text: /([^{](.|\n)*)?/"]
    trigger = mark(form.trigger)
    if trigger.startswith("<"):  # a token of its own, which text can't contain
        return ["start: text calls?", r"text: /(.|\n)*/"]
    rest = [*form.prefix, *form.open, "", *form.close]
    rest.remove(form.trigger)
    tail = f"{_sequence(form, rest, mark)} {more} {_sequence(form, form.suffix, mark)}"
    pattern = re.sub(r"([\[\]|/])", r"\\\1", form.trigger)
    return ["start: text | head tail", r"text: /(.|\n)*/", rf"head[lazy]: /(.|\n)*{pattern}/", f"tail: {tail}"]
