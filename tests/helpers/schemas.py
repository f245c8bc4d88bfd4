"""Thirty JSON Schemas as people write them, each with an end in sight: strings, lists and numbers have bounds."""

from typing import Any

Schema = dict[str, Any]

SHORT = {"type": "string", "maxLength": 6}
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}


def closed(required: dict[str, Any], optional: dict[str, Any] | None = None, **more: Any) -> Schema:
    """An object of these properties and no others."""
    properties = required | (optional or {})
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def listed(item: Any, least: int = 0, most: int = 4) -> Schema:
    """An array with bounds."""
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}


SCHEMAS: dict[str, Schema] = {
    "object": closed({"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 150}}),
    "optional properties": closed({"a": DIGIT}, {"b": {"type": "boolean"}, "c": {"type": "null"}}),
    "nested objects": closed({"a": closed({"b": closed({"c": closed({"d": {"type": "boolean"}})})})}),
    "enum of strings": {"enum": ["north", "south", "east", "west"]},
    "enum of all kinds": {"enum": ["a", 1, 2.5, None, True, [1, 2], {"k": "v"}]},
    "const": closed({"kind": {"const": "fixed"}, "version": {"const": 3}}),
    "boolean": {"type": "boolean"},
    "integer range": {"type": "integer", "minimum": -17, "maximum": 342},
    "exclusive range": {"type": "integer", "exclusiveMinimum": 10, "exclusiveMaximum": 13},
    "number range": {"type": "number", "minimum": 0.5, "maximum": 2.75},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 700},
    "string lengths": {"type": "string", "minLength": 3, "maxLength": 5},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
    "pattern with choices": {"type": "string", "pattern": "^(foo|ba[rz])(_[a-f0-9]{1,3})?$"},
    "date": closed({"on": {"type": "string", "format": "date"}}),
    "time and uuid": closed({"at": {"type": "string", "format": "time"}, "id": {"type": "string", "format": "uuid"}}),
    "address": {"type": "string", "format": "ipv4"},
    "array of numbers": listed(DIGIT, 2, 5),
    "array of objects": listed(closed({"x": DIGIT, "y": DIGIT}), 1, 3),
    "array of arrays": listed(listed({"type": "boolean"}, 1, 2), 1, 2),
    "tuple": {"type": "array", "prefixItems": [SHORT, DIGIT, {"type": "boolean"}], "items": False, "minItems": 3},
    "union of types": closed({"value": {"type": ["integer", "boolean", "null"], "minimum": 0, "maximum": 99}}),
    "any of": {"anyOf": [closed({"a": DIGIT}), closed({"b": SHORT}), {"type": "null"}]},
    "one of by kind": {
        "oneOf": [
            closed({"kind": {"const": "circle"}, "radius": DIGIT}),
            closed({"kind": {"const": "square"}, "side": DIGIT}),
        ]
    },
    "all of": {"allOf": [closed({"a": DIGIT, "b": SHORT}), {"properties": {"a": {"minimum": 5}}}]},
    "definitions": closed(
        {"from": {"$ref": "#/$defs/point"}, "to": {"$ref": "#/$defs/point"}},
        **{"$defs": {"point": listed(DIGIT, 2, 2)}},
    ),
    "recursion, a list": {
        "$defs": {"node": closed({"v": DIGIT, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}})},
        "$ref": "#/$defs/node",
    },
    "recursion, a tree": closed({"v": DIGIT, "children": listed({"$ref": "#"}, 0, 1)}),
    "unicode": closed({"größe": {"enum": ["klein", "groß", "日本", "🎉 ja"]}, "café ☕": {"type": "boolean"}}),
    "map": {"type": "object", "additionalProperties": DIGIT, "maxProperties": 2},
}
assert len(SCHEMAS) == 30
