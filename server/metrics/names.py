"""What labels may say, and where the histograms' buckets end. No label holds anything that a user can choose."""

from typing import Literal

Endpoint = Literal[
    "completions",
    "chat_completions",
    "responses",
    "messages",
    "count_tokens",
    "render",
    "replay",
    "tokenize",
    "detokenize",
]
Outcome = Literal["ok", "cancelled", "error", "refused", "unavailable"]
Rejection = Literal[
    "overloaded",
    "rate_limit_exceeded",
    "shutting_down",
    "engine_unavailable",
    "context_length_exceeded",
    "condemned_request",
    "unauthorized",
    "invalid",
]
CacheState = Literal["used", "cached", "free"]
Phase = Literal["prompt", "decode"]
DiskAction = Literal["read", "written", "refused"]

# fmt: off
SECONDS = (
    0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4,
    0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)
# fmt: on
STEP_TOKENS = tuple(float(2**power) for power in range(14))
TOKENS = tuple(float(2**power) for power in range(18))
