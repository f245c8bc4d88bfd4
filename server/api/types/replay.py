"""The body of POST /v1/replay: a receipt, as an answer carried it."""

from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, Len
from pydantic import Field

from server.api.types.wire import Wire

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Limit = Annotated[int, Ge(0), Le(2**31 - 1)]


class Receipt(Wire):
    """What was computed and by what; `server.api.receipts` makes it."""

    version: Literal[1]
    model_digest: str
    backend: str
    kernels: str
    kernels_version: str
    quantization: str
    dtype: str
    kv_cache_dtype: str
    endpoint: Literal["completions", "chat_completions"]
    request: dict[str, Any]
    prompt_token_ids: Annotated[list[Annotated[list[int], Len(1)]], Len(1)]
    max_tokens: Annotated[list[Limit], Len(1)]
    choices_sha256: Digest


class ReplayBody(Wire):
    """POST /v1/replay."""

    receipt: Receipt
