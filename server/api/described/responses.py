"""Answers of OpenAI's Responses API. https://platform.openai.com/docs/api-reference/responses"""

from typing import Any, Literal

from pydantic import ConfigDict

from server.api.described.insight import Kvell
from server.api.described.openai import TokenLogprobs
from server.api.types.wire import Wire

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(Wire):
    """Text that the model wrote; logprobs if they were asked for."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprobs]


class OutputMessage(Wire):
    """A message of the assistant's."""

    id: str
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class OutputCall(Wire):
    """A call that the model made."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class InputDetails(Wire):
    """Of the input."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(Wire):
    """Of the output."""

    reasoning_tokens: int


class ResponseUsage(Wire):
    """Tokens."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Incomplete(Wire):
    """Why an answer is cut."""

    reason: Literal["max_output_tokens"]


class ResponseFault(Wire):
    """Why an answer failed; the code that docs/api.md lists is in the error event before."""

    code: str
    message: str


class ResponseAnswer(Wire):
    """A response: what came out, and what was asked with the defaults that counted."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
    error: ResponseFault | None
    incomplete_details: Incomplete | None
    model: str
    output: list[OutputMessage | OutputCall]
    usage: ResponseUsage | None
    background: Literal[False]
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: None
    prompt_cache_key: str | None
    reasoning: dict[str, None]
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: Literal[False]
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, str]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    user: str | None
    kvell: Kvell | None = None


class ResponseEvent(Wire):
    """One event of a streamed response, by OpenAI's names; what else it has depends on its type."""

    model_config = ConfigDict(extra="allow")

    type: str
    sequence_number: int
