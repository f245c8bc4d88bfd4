"""The bodies of POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API."""

from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, Len
from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from server.api.types.tagged import one_of, only, tag
from server.api.types.wire import MAX_MESSAGES, MAX_STOPS, Count, StopText, Wire


class CacheControl(Wire):
    """A wish to have the prefix cached, which kvell always does."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class TextBlock(Wire):
    """Text."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: list[Any] | None = None


class ToolUse(Wire):
    """A call that the model made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: dict[str, Any] | None = None


def _blocks(value: object) -> object:
    """A text is one block."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


TextOnly = Annotated[TextBlock, only("Content blocks", "text")]
Texts = Annotated[list[TextOnly], BeforeValidator(_blocks, json_schema_input_type=str | list[TextOnly])]


class ToolResult(Wire):
    """What a call brought."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Texts | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


UserBlock = Annotated[
    Annotated[TextBlock, tag("text")] | Annotated[ToolResult, tag("tool_result")],
    one_of("Content blocks of users", {name: name for name in ("text", "tool_result")}),
]
AssistantBlock = Annotated[
    Annotated[TextBlock, tag("text")] | Annotated[ToolUse, tag("tool_use")],
    one_of("Content blocks of assistants", {name: name for name in ("text", "tool_use")}),
]


class UserTurn(Wire):
    """What the user says, and what calls brought."""

    role: Literal["user"]
    content: Annotated[list[UserBlock], BeforeValidator(_blocks, json_schema_input_type=str | list[UserBlock]), Len(1)]


class AssistantTurn(Wire):
    """What the model said."""

    role: Literal["assistant"]
    content: Annotated[
        list[AssistantBlock], BeforeValidator(_blocks, json_schema_input_type=str | list[AssistantBlock]), Len(1)
    ]


class SystemTurn(Wire):
    """Instructions in mid-conversation."""

    role: Literal["system"]
    content: Texts


def _by_role(value: dict[str, Any]) -> object:
    return value.get("role")


Turn = Annotated[
    Annotated[UserTurn, tag("user")]
    | Annotated[AssistantTurn, tag("assistant")]
    | Annotated[SystemTurn, tag("system")],
    one_of("Messages", {name: name for name in ("user", "assistant", "system")}, _by_role),
]


class ClientTool(Wire):
    """A function that the model may call."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    cache_control: CacheControl | None = None


Tool = Annotated[ClientTool, only("Tools", "custom")]


class ToolChoice(Wire):
    """Whether tools may (auto), must (any, or the one named) or must not (none) be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _names_a_tool(self) -> "ToolChoice":
        if (self.type == "tool") != (self.name is not None):
            raise PydanticCustomError("tool_choice", "Input should have a name exactly when its type is 'tool'")
        return self


class Metadata(Wire):
    """Who asks; changes nothing."""

    user_id: str | None = None


class JsonFormat(Wire):
    """JSON of this schema."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Wire):
    """What kind of text is wanted."""

    format: JsonFormat | None = None


class CountTokensBody(Wire):
    """POST /v1/messages/count_tokens: what of a request becomes its prompt."""

    model: str | None = None
    messages: Annotated[list[Turn], Len(1, MAX_MESSAGES)]
    system: Texts | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None


class MessagesBody(CountTokensBody):
    """POST /v1/messages. seed, min_p and ignore_eos are as on the other endpoints, beyond Anthropic's."""

    max_tokens: Count
    stop_sequences: Annotated[list[StopText], Len(0, MAX_STOPS)] | None = None
    temperature: Annotated[float, Ge(0), Le(2)] | None = None
    top_p: Annotated[float, Ge(0), Le(1)] | None = None
    top_k: Annotated[int, Ge(-1)] | None = None
    min_p: Annotated[float, Ge(0), Le(1)] | None = None
    seed: Annotated[int, Ge(-(2**63)), Le(2**63 - 1)] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
