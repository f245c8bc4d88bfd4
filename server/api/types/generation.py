"""The fields that chat and completions have in common; docs/api.md says them in prose."""

from typing import Annotated, Literal

from annotated_types import Ge, Le, Len
from pydantic import Field

from server.api.types.structured import ResponseFormat, StructuredOutputs
from server.api.types.wire import MAX_CHOICES_PER_PROMPT, MAX_STOP_TOKEN_IDS, Biases, Count, Penalty, Stops, Wire


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
    cache_salt: Annotated[str, Len(1, 256)] | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], Len(0, 16)] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
