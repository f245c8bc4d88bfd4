"""From a checked body to the engine's `Request`s: defaults, ranges that depend on the model, the length of the answer.

Shared by chat and completions. Pure: no waiting, no HTTP, so that big inputs can be prepared on a worker thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from server.api.params import check_ids, sampling_params
from server.api.serving import Limits, ServedModel
from server.api.shown import MAX_PROMPT_SCORES, Shown
from server.api.tools.calling import Calling
from server.api.types import GenerationBody, StreamOptions, Wire
from server.engine.detokenizer import decode
from server.engine.errors import InvalidValue, PromptTooLong
from server.engine.request import Constraint, Request


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request for text, ready to run. requests[p * n + c] is choice c of prompt p.

    echoes has one text per prompt, to be put before each of its answers. include_stop: the stop string that ends an
    answer is part of it. timeout_s: the answer is to be complete so long after the request came. num_shown: of each
    prompt's choices only so many are, the likeliest; None: all, in order. fields: the body as JSON had it.
    """

    id: str
    requests: tuple[Request, ...]
    num_prompts: int
    stops: tuple[str, ...]
    echoes: tuple[str, ...]
    seed: int
    stream: bool
    include_usage: bool
    include_stop: bool = False
    timeout_s: float | None = None
    shown: Shown = field(default_factory=Shown)
    num_shown: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    asked: Wire | None = None  # the body, where the answer repeats parts of it
    calling: Calling | None = None
    continuous_usage: bool = False
    include_progress: bool = False

    @property
    def choices_per_prompt(self) -> int:
        return len(self.requests) // self.num_prompts


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an endpoint asks of `make_job` beside the body's common fields. max_tokens None: up to the limit.

    cut: max_tokens is a default, and may shrink to what is left of the context. best_of: so many choices are made of
    each prompt; None: as many as are shown. fields: the body as JSON had it, for receipts.
    """

    prompts: Sequence[tuple[int, ...]]
    param: str
    max_tokens: int | None
    cut: bool
    num_logprobs: int | None
    echoes: tuple[str, ...] = ()
    constraint: Constraint | None = None
    calling: Calling | None = None
    best_of: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def shown(self, body: GenerationBody) -> Shown:
        """What the answer shows."""
        return Shown(
            logprobs=self.num_logprobs,
            echoed=bool(self.echoes) and self.num_logprobs is not None,
            prompt_logprobs=body.prompt_logprobs,
            token_ids=bool(body.return_token_ids),
            receipt=bool(body.kvell_receipt),
        )


def make_job(job_id: str, body: GenerationBody, wanted: Wanted, model: ServedModel, limits: Limits) -> Job:
    """Raises RequestError with the value and the limit for whatever can't be done."""
    num_shown = body.n or 1
    num_choices = num_shown if wanted.best_of is None else wanted.best_of
    _check_together(body, wanted, limits, num_choices)
    shown = wanted.shown(body)
    for prompt in wanted.prompts:
        check_ids(prompt, wanted.param, model)
    wanted = _truncated(wanted, body.truncate_prompt_tokens, model)
    lengths = _answer_lengths(wanted, body.min_tokens or 0, limits)
    _check_scores(shown, wanted, num_shown)
    chooses = num_choices > num_shown  # by log-probabilities
    options = body.stream_options or StreamOptions()
    params = sampling_params(body, 0 if chooses and shown.logprobs is None else shown.logprobs, model)
    requests = tuple(
        Request(
            f"{job_id}-{p}-{c}",
            prompt,
            length,
            replace(params, choice=c),
            cache_salt=body.cache_salt or "",
            priority=body.priority or 0,
            constraint=wanted.constraint,
            prompt_logprobs=shown.scored if c == 0 else None,
            wants_progress=bool(options.include_progress),
        )
        for p, (prompt, length) in enumerate(zip(wanted.prompts, lengths, strict=True))
        for c in range(num_choices)
    )
    return Job(
        id=job_id,
        requests=requests,
        num_prompts=len(wanted.prompts),
        stops=tuple(body.stop or ()),
        echoes=wanted.echoes or ("",) * len(wanted.prompts),
        seed=params.seed,
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
        include_stop=bool(body.include_stop_str_in_output),
        timeout_s=None if body.timeout_ms is None else body.timeout_ms / 1000,
        shown=shown,
        num_shown=num_shown if chooses else None,
        fields=wanted.fields,
        calling=wanted.calling,
        continuous_usage=bool(options.continuous_usage_stats),
        include_progress=bool(options.include_progress),
    )


def _truncated(wanted: Wanted, most: int | None, model: ServedModel) -> Wanted:
    """With the last `most` tokens of each prompt; what is echoed of a shortened one is the text of these."""
    if most is None:
        return wanted
    prompts = [prompt[-most:] for prompt in wanted.prompts]
    echoes = tuple(
        echo if len(whole) <= most else decode(model.tokenizer, prompt)
        for echo, whole, prompt in zip(wanted.echoes, wanted.prompts, prompts, strict=False)
    )
    return replace(wanted, prompts=prompts, echoes=echoes)


def _check_scores(shown: Shown, wanted: Wanted, num_shown: int) -> None:
    entries = num_shown * sum(shown.num_prompt_scores(len(prompt)) for prompt in wanted.prompts)
    if entries > MAX_PROMPT_SCORES:
        raise InvalidValue(
            f"The answer would hold {entries} log-probabilities of its prompts; the limit is {MAX_PROMPT_SCORES}",
            param="prompt_logprobs" if shown.prompt_logprobs is not None else "logprobs",
        )


def _check_together(body: GenerationBody, wanted: Wanted, limits: Limits, num_choices: int) -> None:
    num_sequences = len(wanted.prompts) * num_choices
    if num_sequences > limits.max_sequences:
        factor = "n" if wanted.best_of is None else "best_of"
        raise InvalidValue(
            f"Prompts times {factor} is {num_sequences} sequences; one request may have {limits.max_sequences}",
            param=factor if len(wanted.prompts) <= limits.max_sequences else wanted.param,
        )
    if body.stream_options is not None and not body.stream:
        raise InvalidValue("stream_options is only allowed when stream is true", param="stream_options")


def _answer_lengths(wanted: Wanted, min_tokens: int, limits: Limits) -> list[int]:
    """By prompt. Raises PromptTooLong, or InvalidValue where an answer would end too early."""
    lengths = [_answer_length(len(prompt), wanted, limits) for prompt in wanted.prompts]
    if min_tokens > min(lengths):
        raise InvalidValue(
            f"min_tokens is {min_tokens}, but the answer ends after {min(lengths)} tokens", param="min_tokens"
        )
    return lengths


def _answer_length(prompt_tokens: int, wanted: Wanted, limits: Limits) -> int:
    """The most tokens that the answer may have. Raises PromptTooLong with every number that matters."""
    room = limits.tokens - prompt_tokens
    asked = room if wanted.max_tokens is None else min(wanted.max_tokens, room) if wanted.cut else wanted.max_tokens
    least = 0 if wanted.max_tokens == 0 else 1
    if least <= asked <= room:
        return asked
    what = "KV cache holds at most" if limits.cache_tokens < limits.context_tokens else "model's context has"
    named = wanted.max_tokens is not None and asked >= least
    answer = f"{wanted.max_tokens} for the answer" if named else "at least 1 for the answer"
    raise PromptTooLong(
        f"The {what} {limits.tokens} tokens; the request needs {prompt_tokens} for the prompt and {answer}",
        param=wanted.param,
    )
