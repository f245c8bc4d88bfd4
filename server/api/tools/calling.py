"""What a chat request says of tools, made ready: what the prompt shows, what the answer must follow, who reads it.

Knows the body's fields, families and the model's special tokens; knows no template and no engine.
"""

import hashlib
import json
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from server.api.constraints import check_constraint, schema_constraint
from server.api.tools.calls import CallParser
from server.api.tools.families import Family
from server.api.tools.grammar import calls_grammar
from server.api.tools.schema import arguments_schema
from server.api.types import ChatBody
from server.api.types.tools import FunctionSpec
from server.engine.errors import InvalidValue, UnsupportedValue
from server.engine.grammar import rule_of
from server.engine.request import Constraint, Request

ALPHANUMERIC = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Calling:
    """Of a request whose answer may hold calls.

    shown    the tools as the template gets them
    reveal   special tokens that calls are marked with, by id, and the text they are read as
    """

    family: Family
    shown: tuple[Mapping[str, Any], ...]
    reveal: Mapping[int, bytes]
    constraint: Constraint | None

    def parser(self, request: Request) -> CallParser:
        """For the answer to one of the requests."""
        return self.family.parser(_ids(request, self.family.id_length))


def calling_of(
    body: ChatBody, free: Constraint | None, family: Family, special_tokens: Mapping[str, int]
) -> Calling | None:
    """None where no calls can come. free: what an answer without calls must look like.

    Raises InvalidValue for tools that contradict each other, and for schemas that must be followed and can't be.
    """
    choice = body.tool_choice.mode if body.tool_choice else "auto"
    if choice in ("required", "named") and not body.tools:
        raise InvalidValue(f"tool_choice is {choice}, but there are no tools", param="tool_choice")
    if not body.tools or choice == "none":
        return None
    functions = _callable(body)
    constraint = free
    one_at_most = body.parallel_tool_calls is False
    strict = any(function.strict for _, function in functions)
    if choice != "auto" or one_at_most or strict or free is not None:
        constraint = _constraint(body, functions, free if choice == "auto" else None, family, special_tokens)
    marks = {special_tokens[text]: text.encode() for text in family.form.marks if text in special_tokens}
    shown = tuple(tool.model_dump(exclude_none=True) for tool in body.tools)
    return Calling(family, shown, marks, constraint)


def _callable(body: ChatBody) -> list[tuple[int, FunctionSpec]]:
    """The functions that may be called, with their places among the tools."""
    functions = [(i, tool.function) for i, tool in enumerate(body.tools or ())]
    names = [function.name for _, function in functions]
    for i, function in functions:
        if function.name in names[:i]:
            param = f"tools[{i}].function.name"
            raise InvalidValue(f"{param}: there are two functions of the name {function.name!r}", param=param)
        if function.parameters and function.parameters.get("type", "object") != "object":
            param = f"tools[{i}].function.parameters"
            raise InvalidValue(f"{param}: Input should be a schema of type object", param=param)
    if body.tool_choice is None or body.tool_choice.mode != "named":
        return functions
    wanted = body.tool_choice.name
    if wanted not in names:
        raise InvalidValue(f"tool_choice: there is no function of the name {str(wanted)[:64]!r}", param="tool_choice")
    return [each for each in functions if each[1].name == wanted]


def _constraint(
    body: ChatBody,
    functions: list[tuple[int, FunctionSpec]],
    free: Constraint | None,
    family: Family,
    special_tokens: Mapping[str, int],
) -> Constraint:
    """An answer of calls, or (tool_choice auto) one that may be something else."""
    for i, function in functions:
        check_constraint(schema_constraint(arguments_schema(function), param=f"tools[{i}].function.parameters"))
    if free is not None and free.kind == "lark":
        raise UnsupportedValue(f"{free.param} can't be combined with tools; set tool_choice", param=free.param)
    auto = body.tool_choice is None or body.tool_choice.mode == "auto"
    grammar = calls_grammar(
        family.form,
        [function for _, function in functions],
        lambda text: f"<[{special_tokens[text]}]>" if text in special_tokens else json.dumps(text),
        parallel=body.parallel_tool_calls is not False
        and (body.tool_choice is None or body.tool_choice.mode != "named"),
        content=None if not auto else rule_of(free) if free else "",
    )
    constraint = Constraint("lark", grammar, "tools")
    check_constraint(constraint)
    return constraint


def _ids(request: Request, length: int) -> Callable[[], str]:
    """Ids of an answer's calls, unlike any other's, and the same again for the same prompt, seed and choice."""
    key = json.dumps([request.prompt, request.params.seed, request.params.choice]).encode()
    count = 0

    def new_id() -> str:
        nonlocal count
        count += 1
        digest = hashlib.blake2b(key, salt=count.to_bytes(16, "little")).digest()
        if not length:
            return f"call_{digest[:12].hex()}"
        return "".join(ALPHANUMERIC[byte % len(ALPHANUMERIC)] for byte in digest[:length])

    return new_id
