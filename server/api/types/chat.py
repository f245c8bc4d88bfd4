"""The body of POST /v1/chat/completions, and its messages."""

from typing import Annotated, Any, Literal

from annotated_types import Len
from pydantic import BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from server.api.types.generation import GenerationBody
from server.api.types.tools import ToolCall, ToolChoiceField, Tools
from server.api.types.wire import MAX_MESSAGES, Count, TopLogprobs, Wire


def _text_parts(value: object) -> object:
    """Content as one text: parts follow one another, nothing in between. Only text parts are served."""
    if not isinstance(value, list):
        return value
    if not value:
        raise PydanticCustomError("content", "Input should have at least one part")
    return "".join(_part_text(part) for part in value)


def _part_text(part: object) -> str:
    if not isinstance(part, dict):
        raise PydanticCustomError("content", "Input should be text parts: objects with type and text")
    if part.get("type") != "text":
        kind = repr(part.get("type"))[:40]
        raise PydanticCustomError(
            "unsupported_value", "Content parts of type {kind} are not served; use 'text'", {"kind": kind}
        )
    text = part.get("text")
    if not isinstance(text, str) or len(part) != 2:
        raise PydanticCustomError("content", "Input should be text parts: objects with type and text, and nothing else")
    return text


class Message(Wire):
    """One turn. Content is one text by now."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        str | None, BeforeValidator(_text_parts, json_schema_input_type=str | list[dict[str, str]] | None)
    ] = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] | None = None
    name: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "Message":
        if self.tool_calls and self.role != "assistant":
            raise PydanticCustomError("tool_calls", "Messages of role {role} have no tool_calls", {"role": self.role})
        if self.name is not None and self.role != "tool":
            raise PydanticCustomError(
                "unsupported_value", "The name of who speaks is not served by kvell; leave name out, or null"
            )
        if self.content is None and self.role != "assistant":
            raise PydanticCustomError("content", "Messages of role {role} need content", {"role": self.role})
        return self


class ChatBody(GenerationBody):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Len(1, MAX_MESSAGES)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    tools: Tools | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    chat_template: str | None = None
