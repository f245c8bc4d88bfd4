"""Answers of completions and chat completions. https://platform.openai.com/docs/api-reference/chat/object"""

from typing import Literal

from server.api.described.insight import Kvell, Shown
from server.api.types.wire import Wire

Finish = Literal["stop", "length", "tool_calls"]


class CachedTokens(Wire):
    """Of the prompt."""

    cached_tokens: int


class Usage(Wire):
    """Tokens. A prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class CompletionLogprobs(Wire):
    """Parallel lists, one entry per token. text_offset counts characters of the returned text."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(Shown):
    """One text."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Finish | None


class CompletionAnswer(Wire):
    """Texts, n for each prompt."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    kvell: Kvell


class PromptProgress(Wire):
    """How far a prompt is: tokens that are processed, cached ones among them, of all of them."""

    prompt: int
    total: int
    processed: int
    cached: int


class CompletionChunk(Wire):
    """A part of a streamed completion."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
    kvell: Kvell | None = None
    prompt_progress: PromptProgress | None = None


class TopLogprob(Wire):
    """A token that could have come."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprobs(Wire):
    """A token that came, and the likeliest ones at its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Wire):
    """One entry per token."""

    content: list[TokenLogprobs]
    refusal: None


class CalledFunction(Wire):
    """Its arguments are JSON as text."""

    name: str
    arguments: str


class ToolCall(Wire):
    """A call that the model made."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Wire):
    """What the model said. content is null where it only called functions."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[ToolCall] | None = None


class ChatChoice(Shown):
    """One answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish


class ChatAnswer(Wire):
    """n answers to a conversation."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    kvell: Kvell


class FunctionPart(Wire):
    """The name comes with the first part; arguments are pieces of JSON."""

    name: str | None = None
    arguments: str


class ToolCallPart(Wire):
    """Part of the call number `index`. id and type come with the first."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionPart


class ChatDelta(Wire):
    """What a chunk adds. The role comes once and first."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: None = None
    tool_calls: list[ToolCallPart] | None = None


class ChatChunkChoice(Shown):
    """What a chunk adds to one answer."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: Finish | None


class ChatChunk(Wire):
    """A part of a streamed chat completion."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    kvell: Kvell | None = None
    prompt_progress: PromptProgress | None = None
