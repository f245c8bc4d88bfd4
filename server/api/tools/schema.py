"""The JSON Schema of a call, made of the schema of its arguments."""

from collections.abc import Mapping
from typing import Any

from server.api.types.tools import FunctionSpec

PLAIN = ("const", "enum", "default", "examples")  # keywords whose values are data, not schemas
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def arguments_schema(function: FunctionSpec) -> dict[str, Any]:
    """What its arguments must be: an object."""
    if function.parameters is None:
        return NO_PARAMETERS
    return {"type": "object", **function.parameters}


def call_schema(function: FunctionSpec, key: str) -> dict[str, Any]:
    """{"name": its name, key: its arguments}, in this order."""
    arguments = moved(arguments_schema(function), f"#/properties/{key}")
    return {
        "type": "object",
        "properties": {"name": {"const": function.name}, key: arguments},
        "required": ["name", key],
        "additionalProperties": False,
    }


def moved(schema: Any, root: str) -> Any:
    """A schema that now lies at `root` of another: what it says of its own places is said from there."""
    if isinstance(schema, list):
        return [moved(part, root) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _moved_entry(key, value, root) for key, value in schema.items()}


def _moved_entry(key: str, value: Any, root: str) -> Any:
    if key == "$ref" and isinstance(value, str) and value.startswith("#"):
        return root + value[1:]
    return value if key in PLAIN else moved(value, root)
