"""Answers that no model generated, and errors."""

from typing import Any, Literal

from server.api.types.wire import Wire


class ErrorObject(Wire):
    """What is wrong and with which field; docs/api.md lists the codes."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Wire):
    """A failure, in OpenAI's shape."""

    error: ErrorObject


class Piece(Wire):
    """One token. start and end are byte offsets in the text, null where the tokenizer itself changed it."""

    id: int
    piece: str
    bytes: list[int]
    start: int | None
    end: int | None


class Tokenized(Wire):
    """Ids, and what they stand for where with_pieces was set. max_model_len is null until the engine has loaded."""

    count: int
    max_model_len: int | None
    tokens: list[int]
    text: str | None = None
    pieces: list[Piece] | None = None


class Detokenized(Wire):
    """The text of ids."""

    prompt: str


class RenderedPrompt(Wire):
    """A prompt as the model gets it, and how long the answer may get."""

    text: str
    tokens: list[int]
    count: int
    max_tokens: int


class Rendered(Wire):
    """What a request would send to the model."""

    object: Literal["render"]
    model: str
    prompts: list[RenderedPrompt]


class Cancelled(Wire):
    """Whatever ran under this id ends now."""

    id: str
    object: Literal["request"]
    cancelled: Literal[True]


class ModelEntry(Wire):
    """The model: context, files, and what it is computed in. stored_bytes is by storage type."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    context_length: int
    digest: str
    format: str
    quantization: str | None
    stored_bytes: dict[str, int]
    dtype: str
    kv_cache_dtype: str
    backend: str
    bit_exact: bool


class ModelList(Wire):
    """All models: one."""

    object: Literal["list"]
    data: list[ModelEntry]


class CapabilityLimits(Wire):
    """What bounds a request as a whole."""

    max_model_len: int
    max_sequences: int
    max_body_bytes: int


class Capability(Wire):
    """An endpoint and its fields: JSON Schema, with `required` or `default`."""

    method: str
    path: str
    summary: str
    fields: dict[str, dict[str, Any]] | None = None
    accepted_when_they_ask_for_nothing: dict[str, list[Any]] | None = None


class Capabilities(Wire):
    """Everything this server takes, and whether an answer is the same bits in any company."""

    object: Literal["capabilities"]
    model: str
    bit_exact: bool
    limits: CapabilityLimits
    endpoints: list[Capability]
    unsupported_endpoints: list[str]


class Health(Wire):
    """The process answers."""

    status: Literal["ok"]


class Readiness(Wire):
    """Whether new work is welcome, and if not, why."""

    status: Literal["ready", "not ready"]
    state: str
    reason: str | None = None
