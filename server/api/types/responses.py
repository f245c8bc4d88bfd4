"""The body of POST /v1/responses: OpenAI's Responses API, as far as a server without a memory can serve it."""

from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, Len
from pydantic import BeforeValidator, Field

from server.api.types.tagged import one_of, only, tag
from server.api.types.wire import MAX_MESSAGES, Count, TopLogprobs, Wire

Progress = Literal["in_progress", "completed", "incomplete"]


class TextPart(Wire):
    """Text of a message. annotations and logprobs stand in answers that a client sends back."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


def _parts(value: object) -> object:
    return [{"type": "input_text", "text": value}] if isinstance(value, str) else value


Part = Annotated[TextPart, only("Content parts", "input_text", "output_text")]
Content = Annotated[list[Part], BeforeValidator(_parts, json_schema_input_type=str | list[Part]), Len(1)]


class InputMessage(Wire):
    """One turn. id and status stand in answers that a client sends back."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    id: str | None = None
    status: Progress | None = None


class FunctionCall(Wire):
    """A call that the model made."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: Progress | None = None


class FunctionCallOutput(Wire):
    """What a call brought."""

    type: Literal["function_call_output"]
    call_id: str
    output: Content
    id: str | None = None
    status: Progress | None = None


def _kind(item: dict[str, Any]) -> object:
    return item.get("type") or ("message" if "role" in item else None)


ITEMS = {name: name for name in ("message", "function_call", "function_call_output")}
Item = Annotated[
    Annotated[InputMessage, tag("message")]
    | Annotated[FunctionCall, tag("function_call")]
    | Annotated[FunctionCallOutput, tag("function_call_output")],
    one_of("Input items", ITEMS, _kind),
]


def _items(value: object) -> object:
    """A text is one message of the user's."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class FunctionTool(Wire):
    """A function that the model may call."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedTool(Wire):
    """The one function that must be called."""

    type: Literal["function"]
    name: str


class ToolMode(Wire):
    """Whether functions may, must or must not be called. Written as a plain string."""

    type: Literal["none", "auto", "required"]


def _mode(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


CHOICES = {"none": "mode", "auto": "mode", "required": "mode", "function": "named"}
ToolChoice = Annotated[
    Annotated[
        Annotated[ToolMode, tag("mode")] | Annotated[NamedTool, tag("named")],
        one_of("Tool choices", CHOICES),
    ],
    BeforeValidator(_mode, json_schema_input_type=Literal["none", "auto", "required"] | NamedTool),
]
Tool = Annotated[FunctionTool, only("Tools", "function")]


class PlainFormat(Wire):
    """Any text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(Wire):
    """JSON of this schema."""

    type: Literal["json_schema"]
    name: str
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


FORMATS = {"text": "plain", "json_object": "plain", "json_schema": "schema"}
Format = Annotated[
    Annotated[PlainFormat, tag("plain")] | Annotated[SchemaFormat, tag("schema")], one_of("Formats", FORMATS)
]


class TextConfig(Wire):
    """What kind of text is wanted."""

    format: Format | None = None
    verbosity: Literal["medium"] | None = None


class ResponseStreamOptions(Wire):
    """What a stream holds besides the answer."""

    include_obfuscation: Literal[False] | None = None


class ResponsesBody(Wire):
    """POST /v1/responses. seed, top_k, min_p and ignore_eos are as on the other endpoints, beyond OpenAI's."""

    model: str | None = None
    input: Annotated[list[Item], BeforeValidator(_items, json_schema_input_type=str | list[Item]), Len(1, MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Ge(0), Le(2)] | None = None
    top_p: Annotated[float, Ge(0), Le(1)] | None = None
    top_k: Annotated[int, Ge(-1)] | None = None
    min_p: Annotated[float, Ge(0), Le(1)] | None = None
    seed: Annotated[int, Ge(-(2**63)), Le(2**63 - 1)] | None = None
    ignore_eos: bool | None = None
    text: TextConfig | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None = None
    top_logprobs: TopLogprobs | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: Annotated[dict[str, str], Len(0, 16)] | None = None
