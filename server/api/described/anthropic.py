"""Answers of Anthropic's Messages API. https://docs.anthropic.com/en/api/messages"""

from typing import Any, Literal

from pydantic import ConfigDict

from server.api.described.insight import Kvell
from server.api.types.wire import Wire


class MessagesErrorObject(Wire):
    """What is wrong; the message names the field."""

    type: str
    message: str


class MessagesError(Wire):
    """A failure, in Anthropic's shape."""

    type: Literal["error"]
    error: MessagesErrorObject


class AnsweredText(Wire):
    """Text that the model wrote."""

    type: Literal["text"]
    text: str


class AnsweredToolUse(Wire):
    """A call that the model made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class MessagesUsage(Wire):
    """Tokens; those that came from the cache are counted apart from the rest of the input."""

    input_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    output_tokens: int


class MessageAnswer(Wire):
    """A message of the assistant's. Streamed: message_start, content blocks with their deltas, message_delta,
    message_stop."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnsweredText | AnsweredToolUse]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessagesUsage
    kvell: Kvell


class MessageEvent(Wire):
    """One event of a streamed message, by Anthropic's names; what else it has depends on its type."""

    model_config = ConfigDict(extra="allow")

    type: str


class TokensCount(Wire):
    """How long a prompt is."""

    input_tokens: int
