"""The shapes of answers, for the API's description only: nothing is checked or made with them when serving.

A test compares them with what is really answered.
"""

from server.api.described.anthropic import MessageAnswer, MessageEvent, MessagesError, TokensCount
from server.api.described.openai import ChatAnswer, ChatChunk, CompletionAnswer, CompletionChunk
from server.api.described.plain import (
    Cancelled,
    Capabilities,
    Detokenized,
    Health,
    ModelEntry,
    ModelList,
    OpenAIError,
    Readiness,
    Rendered,
    Tokenized,
)
from server.api.described.replay import ReplayAnswer
from server.api.described.responses import ResponseAnswer, ResponseEvent

__all__ = [
    "Cancelled",
    "Capabilities",
    "ChatAnswer",
    "ChatChunk",
    "CompletionAnswer",
    "CompletionChunk",
    "Detokenized",
    "Health",
    "MessageAnswer",
    "MessageEvent",
    "MessagesError",
    "ModelEntry",
    "ModelList",
    "OpenAIError",
    "Readiness",
    "Rendered",
    "ReplayAnswer",
    "ResponseAnswer",
    "ResponseEvent",
    "Tokenized",
    "TokensCount",
]

# every type that a route's description names
ANSWERS = (
    Cancelled,
    Capabilities,
    ChatAnswer,
    ChatChunk,
    CompletionAnswer,
    CompletionChunk,
    Detokenized,
    Health,
    MessageAnswer,
    MessageEvent,
    MessagesError,
    ModelEntry,
    ModelList,
    OpenAIError,
    Readiness,
    Rendered,
    ReplayAnswer,
    ResponseAnswer,
    ResponseEvent,
    TokensCount,
    Tokenized,
)
