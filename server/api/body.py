"""From the bytes of a request to a JSON object, strictly: what is ambiguous is refused, never guessed.

Knows JSON (RFC 8259) and its limits here; doesn't know any field.
"""

import asyncio
import json
import math
from typing import Any

from fastapi import Request

from server.api.errors import BodyTooLarge, BodyTooSlow, NotJSON, WrongContentType

MAX_BODY_BYTES = 8 * 2**20
BODY_SECONDS = 60.0
MAX_DEPTH = 128  # of arrays and objects in one another


TOO_DEEP = f"The body is nested too deeply; the limit is {MAX_DEPTH} arrays and objects in one another"


async def read_body(request: Request) -> bytes:
    """The whole body. Raises BodyTooLarge as soon as that is sure, and WrongContentType for what is not JSON."""
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        hint = "with curl, add -H 'Content-Type: application/json'"
        raise WrongContentType(f"Content-Type is {content_type!r}; it must be application/json ({hint})")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise BodyTooLarge(f"The body has {declared} bytes; the limit is {MAX_BODY_BYTES}")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read(request)
    except TimeoutError:
        raise BodyTooSlow(f"The body was not complete after {BODY_SECONDS:.0f} s, the limit") from None


async def _read(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise BodyTooLarge(f"The body has more than {MAX_BODY_BYTES} bytes, the limit")
    return b"".join(parts)


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. NotJSON says what is wrong: NaN, 1e999, a key given twice, no UTF-8 and so on."""
    if not body.strip():
        raise NotJSON("The body is empty; it must be a JSON object")
    try:
        value = json.loads(
            body.decode("utf-8"), parse_constant=_constant, parse_float=_finite, object_pairs_hook=_without_repeats
        )
    except UnicodeDecodeError as error:
        raise NotJSON(f"The body is not UTF-8: byte {error.start} can't be read") from None
    except RecursionError:
        raise NotJSON(TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise NotJSON(f"The body is not JSON: {error}") from None
    except ValueError as error:  # our own hooks, and integers of thousands of digits
        raise NotJSON(f"The body can't be read: {error}") from None
    if is_deeper(value, MAX_DEPTH):
        raise NotJSON(TOO_DEEP)
    if b"\\ud" in body.lower():
        _check_surrogates(value)
    if not isinstance(value, dict):
        raise NotJSON(f"The body must be a JSON object, not {_kind(value)}")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:80]!r} is given twice")
        found[key] = value
    return found


def _check_surrogates(value: object) -> None:
    """Only an escape can smuggle in half of a surrogate pair, and no text may hold one: it can't be encoded again."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise NotJSON("The body holds half of a surrogate pair (\\ud800 to \\udfff), which is no character") from None


def is_deeper(value: object, limit: int) -> bool:
    """Whether there are more than so many arrays and objects in one another."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        if not level:
            return False
        inner = (child for each in level for child in (each.values() if isinstance(each, dict) else each))
        level = [child for child in inner if isinstance(child, dict | list)]
    return bool(level)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return {list: "an array", str: "a string", bool: "a boolean"}.get(type(value), "a number")
