"""What a body says its answer must look like, as the engine's `Constraint`. What can't be compiled is refused here.

Knows the fields and where in a schema a fault is; knows no tokens. A fault that only the vocabulary shows (a Lark
grammar that names a token which the model lacks) the engine reports, in the same words.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from server.api.body import is_deeper
from server.api.types import GenerationBody
from server.engine.errors import InvalidValue
from server.engine.grammar import BadConstraint, check
from server.engine.request import Constraint

MAX_SCHEMA_DEPTH = 64
MAX_CHARACTERS = 524_288  # of a schema, a pattern or a grammar as text

# keywords of a schema that hold schemas: one, several in an array, or several by name
ONE = ("additionalProperties", "items", "not", "contains", "propertyNames", "if", "then", "else")
SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def constraint_of(body: GenerationBody) -> Constraint | None:
    """None where the answer is free. Raises InvalidValue, saying where, for what can't be compiled."""
    wanted = _response_format(body)
    other = _structured_outputs(body)
    if wanted and other:
        raise InvalidValue("Give one of response_format and structured_outputs", param="structured_outputs")
    constraint = wanted or other
    if constraint is not None:
        check_constraint(constraint)
    return constraint


def _response_format(body: GenerationBody) -> Constraint | None:
    asked = body.response_format
    if asked is None or asked.type == "text":
        return None
    if asked.json_schema is None or asked.json_schema.schema_ is None:
        return Constraint("json_object", param="response_format")
    return schema_constraint(asked.json_schema.schema_, param="response_format.json_schema.schema")


def _structured_outputs(body: GenerationBody) -> Constraint | None:
    asked, field = body.structured_outputs, "structured_outputs"
    if asked is None:
        return None
    if asked.json_ is not None:
        return schema_constraint(asked.json_, param=f"{field}.json")
    if asked.regex is not None:
        return Constraint("regex", asked.regex, f"{field}.regex")
    if asked.choice is not None:
        return Constraint("choice", json.dumps(asked.choice, ensure_ascii=False), f"{field}.choice")
    if asked.grammar is not None:
        return Constraint("lark", asked.grammar, f"{field}.grammar")
    return Constraint("json_object", param=field)


def schema_constraint(schema: Mapping[str, Any] | str, *, param: str) -> Constraint:
    """An answer that is JSON of this schema, not checked yet. Raises InvalidValue for text that is no JSON object."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError):
            schema = ""
        if not isinstance(schema, dict):
            raise InvalidValue(f"{param}: Input should be a JSON Schema: an object, or the text of one", param=param)
    if is_deeper(schema, MAX_SCHEMA_DEPTH):
        message = f"{param} is nested too deeply; the limit is {MAX_SCHEMA_DEPTH} arrays and objects in one another"
        raise InvalidValue(message, param=param)
    return Constraint("json_schema", json.dumps(schema, ensure_ascii=False), param)


def check_constraint(constraint: Constraint) -> None:
    """Raises InvalidValue that says what can't be compiled, and where, as far as that can be known here."""
    if len(constraint.source) > MAX_CHARACTERS:
        message = f"{constraint.param} has {len(constraint.source)} characters; the limit is {MAX_CHARACTERS}"
        raise InvalidValue(message, param=constraint.param)
    try:
        check(constraint)
    except BadConstraint as bad:
        where = constraint.param
        if constraint.kind == "json_schema":
            where += "".join(fault_path(json.loads(constraint.source), str(bad)))
        raise InvalidValue(f"{where}: {bad}", param=where) from None


def fault_path(schema: object, message: str) -> list[str]:
    """The steps down to the innermost part that by itself gives rise to this message.

    A part is tried with the root's definitions, which it may refer to.
    """
    root = schema if isinstance(schema, dict) else {}
    shared = {name: root[name] for name in ("$defs", "definitions") if name in root}
    path: list[str] = []
    while step := next((s for s, part in _parts(schema) if _message(part, shared) == message), None):
        path.append(step)
        schema = dict(_parts(schema))[step]
    return path


def _message(part: object, shared: Mapping[str, Any]) -> str | None:
    whole = {**shared, **part} if isinstance(part, dict) else part
    try:
        check(Constraint("json_schema", json.dumps(whole)))
    except BadConstraint as bad:
        return str(bad)
    return None


def _parts(schema: object) -> Iterator[tuple[str, object]]:
    """The schemas directly inside a schema, each with the step that leads there."""
    if not isinstance(schema, dict):
        return
    for keyword in ONE:
        if isinstance(schema.get(keyword), dict):
            yield f".{keyword}", schema[keyword]
    for keyword in SEVERAL:
        if isinstance(parts := schema.get(keyword), list):
            yield from ((f".{keyword}[{i}]", part) for i, part in enumerate(parts))
    for keyword in NAMED:
        if isinstance(named := schema.get(keyword), dict):
            yield from ((f".{keyword}.{name}", part) for name, part in named.items())
