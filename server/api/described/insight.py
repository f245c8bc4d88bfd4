"""What answers of completions and chat say about how they came about."""

from typing import Literal

from server.api.types.replay import Receipt
from server.api.types.wire import Wire


class PromptLogprob(Wire):
    """A token that could stand here. rank is null for the prompt's own where it is none of the best."""

    logprob: float
    rank: int | None
    decoded_token: str


class Shown(Wire):
    """What a choice, or its first chunk, shows where it was asked for. prompt_logprobs is by id."""

    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | None = None


class Kvell(Wire):
    """How the answer came about. Times are the longest of any choice; receipt is for POST /v1/replay."""

    queue_ms: float
    prompt_ms: float
    decode_ms: float
    cached_tokens: int
    preemptions: int
    seed: int
    ended_by: Literal["deadline", "length", "stop_string", "stop_token"]
    receipt: Receipt | None = None
