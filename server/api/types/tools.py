"""Functions that a client offers, the calls in its messages, and whether one must be called."""

from typing import Annotated, Any, Literal

from annotated_types import Len
from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from server.api.types.structured import Schema
from server.api.types.wire import Wire

MAX_TOOLS = 128
FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class FunctionSpec(Wire):
    """A function. Without parameters it takes none. strict: its calls follow the schema even if none is required."""

    name: FunctionName
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class Tool(Wire):
    """The only kind of tool that is served."""

    type: Literal["function"]
    function: FunctionSpec


def _tools(value: object) -> object:
    for tool in value if isinstance(value, list) else ():
        kind = tool.get("type") if isinstance(tool, dict) else "function"
        if kind not in ("function", None):
            raise PydanticCustomError(
                "unsupported_value", "Tools of type {kind} are not served; use 'function'", {"kind": repr(kind)[:40]}
            )
    return value


Tools = Annotated[list[Tool], BeforeValidator(_tools), Len(0, MAX_TOOLS)]


class ToolChoice(Wire):
    """mode "named": the function `name` must be called."""

    mode: Literal["none", "auto", "required", "named"]
    name: str | None = None


def _choice(value: Any) -> object:
    """OpenAI's forms of it: a word, or an object with the function's name."""
    if value in ("none", "auto", "required"):
        return {"mode": value}
    match value:
        case {"type": "function", "function": {"name": str(name)}} if len(value) == 2:
            return {"mode": "named", "name": name}
    raise PydanticCustomError(
        "tool_choice",
        'Input should be "none", "auto", "required" or {example}',
        {"example": '{"type": "function", "function": {"name": ...}}'},
    )


ToolChoiceField = Annotated[ToolChoice, BeforeValidator(_choice, json_schema_input_type=str | dict[str, Any])]


class CalledFunction(Wire):
    """arguments: JSON text, as the model wrote it."""

    name: str
    arguments: str


class ToolCall(Wire):
    """A call that the model made earlier in the conversation."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: Annotated[int, Field(ge=0)] | None = None  # clients that put streams together leave it in

    @model_validator(mode="after")
    def _is_named(self) -> "ToolCall":
        if not self.function.name:
            raise PydanticCustomError("tool_calls", "Input should name the function that was called")
        return self
