"""The fields that each endpoint serves, with their types and ranges; docs/api.md says them in prose.

null is the same as leaving a field out. Nothing here knows defaults, the model or the engine.
"""

from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, Len
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MAX_CHOICES_PER_PROMPT = 128
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1000
MAX_STOP_TOKEN_IDS = 128
MAX_LOGPROBS = 20
MAX_BIASES = 1024

Prompt = str | tuple[int, ...]


def _prompts(value: object) -> tuple[Prompt, ...]:
    """OpenAI's four forms of a prompt as one: a text, texts, ids, or lists of ids."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise PydanticCustomError(
            "prompt", "Input should be a string, or a list of strings, ids or lists of ids, not empty"
        )
    if isinstance(value[0], int):
        return (_ids(value),)
    if isinstance(value[0], str):
        if not all(isinstance(item, str) for item in value):
            raise PydanticCustomError("prompt", "Input should be strings only, as the first one is a string")
        return tuple(value)
    return tuple(_ids(item) for item in value)


def _ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise PydanticCustomError("prompt", "Input should be token ids: a list of integers, or a list of such lists")
    return tuple(value)


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


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _bias_ids(value: object) -> object:
    """JSON has only string keys: "15043" is token 15043."""
    if not isinstance(value, dict):
        return value
    if any(not (key.isascii() and key.isdecimal()) or str(int(key[:20])) != key for key in value):
        raise PydanticCustomError("logit_bias", 'Input should have token ids as keys, like {"15043": -100}')
    return {int(key): bias for key, bias in value.items()}


Count = Annotated[int, Ge(1), Le(2**31 - 1)]
StopText = Annotated[str, Len(1, MAX_STOP_CHARACTERS)]
Penalty = Annotated[float, Ge(-2), Le(2)]
TopLogprobs = Annotated[int, Ge(0), Le(MAX_LOGPROBS)]
Stops = Annotated[
    list[StopText], BeforeValidator(_listed, json_schema_input_type=str | list[StopText]), Len(0, MAX_STOPS)
]
Bias = Annotated[float, Ge(-100), Le(100)]
Biases = Annotated[
    dict[int, Bias], BeforeValidator(_bias_ids, json_schema_input_type=dict[str, Bias]), Len(0, MAX_BIASES)
]


class Wire(BaseModel):
    """No conversions ("5" is not 5), no fields but those named."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class StreamOptions(Wire):
    """What a stream holds besides the answer."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class GenerationBody(Wire):
    """What chat and completions have in common."""

    model: str | None = None
    max_tokens: Count | None = None
    min_tokens: Annotated[int, Ge(0), Le(2**31 - 1)] | None = None
    temperature: Annotated[float, Ge(0), Le(2)] | None = None
    top_p: Annotated[float, Ge(0), Le(1)] | None = None
    top_k: Annotated[int, Ge(-1)] | None = None
    min_p: Annotated[float, Ge(0), Le(1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Biases | None = None
    seed: Annotated[int, Ge(-(2**63)), Le(2**63 - 1)] | None = None
    n: Annotated[int, Ge(1), Le(MAX_CHOICES_PER_PROMPT)] | None = None
    stop: Stops | None = None
    stop_token_ids: Annotated[list[int], Len(0, MAX_STOP_TOKEN_IDS)] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], Len(0, 16)] | None = None


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: Annotated[
        tuple[Prompt, ...],
        BeforeValidator(_prompts, json_schema_input_type=str | list[str] | list[int] | list[list[int]]),
    ]
    echo: bool | None = None
    logprobs: TopLogprobs | None = None


class Message(Wire):
    """One turn. Content is one text by now."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        str | None, BeforeValidator(_text_parts, json_schema_input_type=str | list[dict[str, str]] | None)
    ] = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "Message":
        if self.content is None and self.role != "assistant":
            raise PydanticCustomError("content", "Messages of role {role} need content", {"role": self.role})
        return self


class ChatBody(GenerationBody):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Len(1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


class TokenizeBody(Wire):
    """POST /tokenize: a text, or messages under the model's chat template."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Len(1)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    with_pieces: bool | None = None


class DetokenizeBody(Wire):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]


# Fields of OpenAI's API that kvell doesn't serve, each with the values that ask for nothing (null always does).
UNSERVED_EVERYWHERE: dict[str, tuple[Any, ...]] = {"store": (False,), "service_tier": ("auto", "default")}
UNSERVED: dict[type[Wire], dict[str, tuple[Any, ...]]] = {
    CompletionBody: UNSERVED_EVERYWHERE | {"best_of": (1,), "suffix": ("",)},
    ChatBody: UNSERVED_EVERYWHERE
    | {
        "audio": (),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "modalities": (["text"],),
        "parallel_tool_calls": (True, False),
        "prediction": (),
        "prompt_cache_retention": (),
        "reasoning_effort": ("none",),
        "response_format": ({"type": "text"},),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "verbosity": ("medium",),
        "web_search_options": (),
    },
    Message: {
        "annotations": ([],),
        "audio": (),
        "function_call": (),
        "name": (),
        "refusal": (),
        "tool_calls": ([],),
    },
}
