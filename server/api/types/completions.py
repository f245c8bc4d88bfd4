"""The body of POST /v1/completions."""

from typing import Annotated

from annotated_types import Ge, Le
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from server.api.types.generation import GenerationBody
from server.api.types.wire import MAX_CHOICES_PER_PROMPT, TopLogprobs

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


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: Annotated[
        tuple[Prompt, ...],
        BeforeValidator(_prompts, json_schema_input_type=str | list[str] | list[int] | list[list[int]]),
    ]
    echo: bool | None = None
    logprobs: TopLogprobs | None = None
    best_of: Annotated[int, Ge(1), Le(MAX_CHOICES_PER_PROMPT)] | None = None
