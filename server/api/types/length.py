"""The fields that say how long a prompt and an answer may be, and what ends an answer."""

from typing import Annotated

from annotated_types import Ge, Le, Len

from server.api.types.wire import MAX_STOP_TOKEN_IDS, Count, Stops, Wire

MAX_TIMEOUT_MS = 24 * 60 * 60 * 1000


class LengthFields(Wire):
    """Lengths and ends."""

    max_tokens: Annotated[int, Ge(0), Le(2**31 - 1)] | None = None
    min_tokens: Annotated[int, Ge(0), Le(2**31 - 1)] | None = None
    stop: Stops | None = None
    stop_token_ids: Annotated[list[int], Len(0, MAX_STOP_TOKEN_IDS)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    truncate_prompt_tokens: Count | None = None
    timeout_ms: Annotated[int, Ge(1), Le(MAX_TIMEOUT_MS)] | None = None
