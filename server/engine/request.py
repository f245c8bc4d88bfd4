"""What is asked, what comes back, and what a step did. These types cross the process border, so no torch here.

One `Request` is one sequence: a prompt with n=3 becomes three requests with choice 0, 1, 2, submitted together.
"""

from typing import Literal

import msgspec

from model.sampling_params import SamplingParams

EndedBy = Literal["", "deadline"]  # "": what finish says
FinishReason = Literal["stop", "length", "cancelled", "error"]
ConstraintKind = Literal["json_schema", "json_object", "regex", "choice", "lark"]


class Constraint(msgspec.Struct, frozen=True):
    """What an answer must look like.

    source  of a json_schema the schema as JSON, of a choice the texts as a JSON array; "" for json_object
    param   the field that the user wrote it in, for errors
    """

    kind: ConstraintKind
    source: str = ""
    param: str = ""


class Request(msgspec.Struct, frozen=True):
    """What one sequence asks for; parsed and checked once at the API's border.

    prompt + max_tokens fits the context; with max_tokens 0 the prompt alone is run. namespace and cache_salt separate
    prefix caches. deadline: when it ends with what there is, on the clock that both processes read (CLOCK_MONOTONIC).
    prompt_logprobs: the prompt's tokens are scored, each with so many best ones.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    params: SamplingParams
    namespace: str = ""
    cache_salt: str = ""
    deadline: float | None = None
    constraint: Constraint | None = None
    prompt_logprobs: int | None = None
    wants_progress: bool = False
    owner: str = ""  # of the key that it came with: tokens are shared out fairly between owners, by weight
    weight: int = 1
    priority: int = 0  # lower goes first among its owner's
    waiting_since: float | None = None  # on the same clock, where it waited before it came to the engine


class TokenLogprob(msgspec.Struct, frozen=True):
    """Natural-log probability of the chosen token under the model's raw distribution, and of the best alternatives,
    best first, ties by lower id. All finite."""

    logprob: float
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()


class TokenEvent(msgspec.Struct, frozen=True):
    """What one step brought to one request.

    tokens     new ids, the stop token that ended the answer included (finish "stop": the last id is that token)
    logprobs   one entry per token, empty unless asked for
    finish     set on the last event of the request, and only there
    error      the reason, when finish is "error"
    cached_tokens, preemptions, queue_seconds: totals so far
    prompt_seconds, decode_seconds: until the first token without queue_seconds, and since then
    prompt_logprobs  further entries for the prompt's tokens, from the second on, where they were asked for
    ended_by   why it ended, where finish doesn't say it all
    refused    the error is the user's fault: the constraint can't be compiled
    prompt_done  prompt tokens that are computed or were cached, in events of their own where wants_progress was set
    """

    request_id: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None
    error: str | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    queue_seconds: float = 0.0
    ended_by: EndedBy = ""
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    refused: bool = False
    prompt_done: int = 0


class GroupStats(msgspec.Struct, frozen=True):
    """Blocks of one KV group by state; used + cached + free is every block that can be handed out."""

    used: int
    cached: int
    free: int
    block_bytes: int


class GroupPicture(msgspec.Struct, frozen=True):
    """The blocks of one KV group as cells of blocks_per_cell blocks each, in runs: state, count, state, count ...

    States: 0 free, 1 cached, 2 shared by several sequences, from 3 on used by one sequence, whose colour it is.
    """

    blocks_per_cell: int
    runs: tuple[int, ...]


class DiskStats(msgspec.Struct, frozen=True):
    """Blocks of the prefix cache on disk. num_bytes is as it stands; the rest is what was new since the last report.

    blocks_refused: files that were not what they should be. warning: a line for the operator, the same ever after.
    """

    num_bytes: int
    blocks_read: int = 0
    blocks_written: int = 0
    blocks_refused: int = 0
    warning: str = ""


class StepStats(msgspec.Struct, frozen=True):
    """What a step did and how things stand after it. Also sent without a step when a cancel changed something."""

    seconds: float
    prompt_tokens: int  # tokens run in prompt chunks, recomputed ones after a preemption included
    recomputed_tokens: int  # of these, the ones that a preemption made necessary again
    decode_tokens: int
    running: int
    waiting: int
    preemptions: int  # in this step
    groups: tuple[GroupStats, ...]
    disk: DiskStats | None = None  # where --prefix-cache-dir is set
