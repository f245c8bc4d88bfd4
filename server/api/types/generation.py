"""The fields that chat and completions have in common; docs/api.md says them in prose."""

from typing import Annotated, Literal

from annotated_types import Ge, Le, Len

from server.api.types.insight import InsightFields
from server.api.types.length import LengthFields
from server.api.types.sampling import SamplingFields
from server.api.types.structured import ResponseFormat, StructuredOutputs
from server.api.types.wire import MAX_CHOICES_PER_PROMPT, Wire


class StreamOptions(Wire):
    """What a stream holds besides the answer."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None
    continuous_usage_stats: bool | None = None
    include_progress: bool | None = None


class GenerationBody(SamplingFields, LengthFields, InsightFields):
    """What chat and completions have in common."""

    model: str | None = None
    n: Annotated[int, Ge(1), Le(MAX_CHOICES_PER_PROMPT)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    cache_salt: Annotated[str, Len(1, 256)] | None = None
    priority: Annotated[int, Ge(-100), Le(100)] | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], Len(0, 16)] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
