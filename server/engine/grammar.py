"""A constraint as a grammar of llguidance's, and what is wrong with one that is none. Both processes use it.

Knows the kinds of constraints; knows no tokens, except that a Lark grammar may name special ones.
"""

import json
import re
from typing import Any

from llguidance import LLMatcher, regex_to_lark

from server.engine.request import Constraint

# Between the parts of JSON a model may write a line break and indent, or some spaces, but not go on like that for ever.
WHITESPACE = r"[ \t]{1,4}|\r?\n[ \t]{0,20}"
# Where a grammar leaves one text only, its tokens are still the model's choice: nobody here could tokenize it.
OPTIONS = '\n%llguidance {"no_forcing": true}\n'
_APPENDED = re.compile(r"\n\s+\d+ \| |<state>|; following special tokens are available")
WITHOUT_TOKENS = "no tokenizer - can't validate"  # how llguidance begins what it says of special tokens then


class BadConstraint(Exception):
    """It can't be compiled, and that is the user's fault. str() is one line that says why."""


def grammar_of(constraint: Constraint) -> str:
    """The grammar's text, not checked yet."""
    return LLMatcher.grammar_from_lark("start: " * (constraint.kind != "lark") + rule_of(constraint) + OPTIONS)


def rule_of(constraint: Constraint) -> str:
    """The body of a rule for the whole answer; of a Lark grammar, the grammar."""
    match constraint.kind:
        case "json_schema" | "json_object":
            return f"%json {json.dumps(_schema(constraint), ensure_ascii=False)}"
        case "regex":
            return f"/{regex_to_lark(constraint.source)}/"
        case "choice":
            texts = json.loads(constraint.source)
            return " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
        case "lark":
            return constraint.source


def _schema(constraint: Constraint) -> dict[str, Any]:
    return options_of(json.loads(constraint.source) if constraint.kind == "json_schema" else {"type": "object"})


def options_of(schema: dict[str, Any]) -> dict[str, Any]:
    """With our options in place of those that a user may have written: "lenient" leaves out what isn't supported."""
    return {**schema, "x-guidance": {"whitespace_pattern": WHITESPACE}}


def check(constraint: Constraint) -> None:
    """Raises BadConstraint for what can't be compiled, whatever the vocabulary. Takes milliseconds.

    A schema is tried by itself, because what is said of it then is shorter. What is only warned of is refused, too: it
    would be left out.
    """
    text = grammar_of(constraint)
    if constraint.kind in ("json_schema", "json_object"):
        text = LLMatcher.grammar_from_json_schema(_schema(constraint))
    _, messages = LLMatcher.validate_grammar_with_warnings(text)
    for message in messages:
        if not message.startswith(WITHOUT_TOKENS):
            raise BadConstraint(one_line(message))


def one_line(message: str, limit: int = 300) -> str:
    """A library's message without its line breaks, excerpts and state, and not longer than a person reads."""
    line = " ".join(_APPENDED.split(message)[0].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
