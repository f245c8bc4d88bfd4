"""A JSON object becomes a wire type, or one error that names the field, the value and what is allowed (law 7).

Knows how to word what pydantic finds; the fields themselves are in `server.api.types`.
"""

import difflib
import json
from collections.abc import Iterable, Sequence
from reprlib import Repr
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from server.api.types import UNSERVED, ChatBody, Message, TokenizeBody, Wire
from server.api.types.tagged import MARK
from server.engine.errors import InvalidValue, RequestError, UnknownField, UnsupportedValue

Body = TypeVar("Body", bound=Wire)

WITH_CHAT_MESSAGES = (ChatBody, TokenizeBody)

_shorten = Repr()
_shorten.maxlevel, _shorten.maxstring, _shorten.maxother, _shorten.maxlong = 2, 80, 80, 40


def parse(fields: dict[str, Any], wire: type[Body]) -> Body:
    """`fields` as `wire`. Raises UnknownField, UnsupportedValue or InvalidValue for the first thing that is wrong."""
    served = _served_only(fields, wire, "")
    messages = served.get("messages")
    if wire in WITH_CHAT_MESSAGES and isinstance(messages, list):
        served["messages"] = [
            _served_only(item, Message, f"messages[{i}].") if isinstance(item, dict) else item
            for i, item in enumerate(messages)
        ]
    try:
        return wire.model_validate(served)
    except ValidationError as found:
        raise _worded(found.errors(include_url=False)[0], wire) from None


def _served_only(fields: dict[str, Any], wire: type[Wire], path: str) -> dict[str, Any]:
    """Without the fields that kvell doesn't serve, provided that they ask for nothing."""
    unserved = UNSERVED.get(wire, {})
    kept = {}
    for name, value in fields.items():
        if name in wire.model_fields:
            kept[name] = value
        elif name not in unserved:
            raise _unknown(path + name, name, [*wire.model_fields, *unserved])
        elif not _asks_for_nothing(value, unserved[name]):
            allowed = ", ".join(map(_shown, (None, *unserved[name])))
            message = f"{path}{name} is not served by kvell; allowed: {allowed}; got {_shown(value)}"
            raise UnsupportedValue(message, param=path + name)
    return kept


def _asks_for_nothing(value: object, harmless: Sequence[object]) -> bool:
    # 0 == False in Python, but 0 isn't what the field's type allows
    return value is None or any(type(value) is type(other) and value == other for other in harmless)


def _unknown(path: str, name: str, known: Iterable[str]) -> UnknownField:
    close = difflib.get_close_matches(name[:80], list(known), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return UnknownField(f"Unknown parameter: {path[:120]!r}{hint}", param=path[:120])


def _worded(error: ErrorDetails, wire: type[Wire]) -> RequestError:
    param = _path(error["loc"])
    if error["type"] == "missing":
        return InvalidValue(f"Missing required parameter: {param!r}", param=param)
    if error["type"] == "extra_forbidden":
        return _unknown(param, str(error["loc"][-1]), _siblings(error["loc"], wire))
    said = "Input should be an object" if error["type"] == "model_type" else error["msg"]
    kind = UnsupportedValue if error["type"] == "unsupported_value" else InvalidValue
    return kind(f"{param}: {said}; got {_shown(error['input'])}", param=param)


def _shown(value: object) -> str:
    """A value as the user wrote it, or the beginning of it."""
    if isinstance(value, dict | list | tuple):
        return _shorten.repr(value)
    return json.dumps(value if not isinstance(value, str) else value[:80], ensure_ascii=False)[:100]


def _path(loc: Sequence[int | str]) -> str:
    """("messages", 0, "content") -> "messages[0].content"."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc if not str(step).startswith(MARK))
    return "".join(steps).removeprefix(".")


def _siblings(loc: Sequence[int | str], wire: type[Wire]) -> list[str]:
    """Names of the fields beside a nested one that is unknown."""
    outer = wire.model_fields.get(str(loc[0]))
    inner = [kind for kind in getattr(outer and outer.annotation, "__args__", ()) if hasattr(kind, "model_fields")]
    return list(inner[0].model_fields) if inner else []
