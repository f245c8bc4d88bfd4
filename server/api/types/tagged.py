"""Objects that say in `type` what they are, with errors that name the types that are served."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BeforeValidator, Discriminator, Tag
from pydantic_core import PydanticCustomError

from server.api.types.wire import Wire

MARK = "\u2039"  # begins a tag, so that an error's path can leave it out: input[0].content

KindOf = Callable[[dict[str, Any]], object]


def by_type(value: dict[str, Any]) -> object:
    """The object's own word."""
    return value.get("type")


def tag(name: str) -> Tag:
    """For one member of a union that `one_of` decides."""
    return Tag(MARK + name)


def one_of(what: str, kinds: Mapping[str, str], kind_of: KindOf = by_type) -> Discriminator:
    """Decides a union by the object's kind; kinds: kind to tag name. what: how errors call such objects."""

    def choose(value: object) -> str | None:
        found = vars(value) if isinstance(value, Wire) else value
        kind = kind_of(found) if isinstance(found, dict) else None
        return MARK + kinds[kind] if isinstance(kind, str) and kind in kinds else None

    return Discriminator(choose, custom_error_type="unsupported_value", custom_error_message=_message(what, *kinds))


def only(what: str, *kinds: str) -> BeforeValidator:
    """Refuses objects of other types by name, where there is no union to decide."""

    def check(value: object) -> object:
        if isinstance(value, dict) and "type" in value and value["type"] not in kinds:
            raise PydanticCustomError("unsupported_value", _message(what, *kinds))
        return value

    return BeforeValidator(check)


def _message(what: str, *kinds: str) -> str:
    return f"{what} of this type are not served; use {' or '.join(map(repr, kinds))}"
