"""A constraint as a grammar of llguidance's, and what is wrong with one that is none. Both processes use it.

Knows the kinds of constraints; knows no tokens, except that a Lark grammar may name special ones.
"""

import json

from llguidance import LLMatcher

from server.engine.request import Constraint

# Between the parts of JSON a model may write a line break and indent, or some spaces, but not go on like that for ever.
WHITESPACE = r"[ \t]{1,40}|\r?\n[ \t]{0,40}"


class BadConstraint(Exception):
    """It can't be compiled, and that is the user's fault. str() is one line that says why."""


def grammar_of(constraint: Constraint) -> str:
    """The grammar's text, not checked yet. Raises BadConstraint where there can't be one."""
    match constraint.kind:
        case "json_schema":
            return _json(constraint.source)
        case "json_object":
            return _json('{"type": "object"}')
        case "regex":
            return LLMatcher.grammar_from_regex(constraint.source)
        case "choice":
            return LLMatcher.grammar_from_lark(_any_of(json.loads(constraint.source)))
        case "lark":
            return LLMatcher.grammar_from_lark(constraint.source)


def _json(schema: str) -> str:
    """lenient would leave out, without a word, what is not supported."""
    try:
        return LLMatcher.grammar_from_json_schema(
            schema, defaults={"whitespace_pattern": WHITESPACE}, overrides={"lenient": False}
        )
    except ValueError as error:
        raise BadConstraint(one_line(str(error))) from error


def _any_of(texts: list[str]) -> str:
    return "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def check(constraint: Constraint) -> None:
    """Raises BadConstraint for what can't be compiled, whatever the vocabulary; takes milliseconds."""
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar_of(constraint))
    if failed:
        raise BadConstraint(one_line(messages[0]))


def one_line(message: str, limit: int = 300) -> str:
    """A library's message without its line breaks, and not longer than a person reads."""
    line = " ".join(message.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
