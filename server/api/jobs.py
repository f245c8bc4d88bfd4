"""From a checked body to the engine's `Request`s: defaults, ranges that depend on the model, the length of the answer.

Shared by chat and completions. Pure: no waiting, no HTTP, so that big inputs can be prepared on a worker thread.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from model.sampling_params import SamplingParams
from server.api.constraints import constraint_of
from server.api.serving import Limits, ServedModel
from server.api.types import GenerationBody, Wire
from server.engine.errors import InvalidValue, PromptTooLong
from server.engine.request import Request

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request for text, ready to run. requests[p * n + c] is choice c of prompt p.

    echoes has one text per prompt, to be put before each of its answers.
    """

    id: str
    requests: tuple[Request, ...]
    num_prompts: int
    stops: tuple[str, ...]
    echoes: tuple[str, ...]
    seed: int
    stream: bool
    include_usage: bool
    asked: Wire | None = None  # the body, where the answer repeats parts of it

    @property
    def choices_per_prompt(self) -> int:
        return len(self.requests) // self.num_prompts

    @property
    def wants_logprobs(self) -> bool:
        return self.requests[0].params.num_logprobs is not None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an endpoint asks of `make_job` beside the body's common fields. max_tokens None: up to the limit.

    cut: max_tokens is a default, and may shrink to what is left of the context.
    """

    prompts: Sequence[tuple[int, ...]]
    param: str
    max_tokens: int | None
    cut: bool
    num_logprobs: int | None
    echoes: tuple[str, ...] = ()


def make_job(job_id: str, body: GenerationBody, wanted: Wanted, model: ServedModel, limits: Limits) -> Job:
    """Raises RequestError with the value and the limit for whatever can't be done."""
    num_choices = body.n or 1
    _check_together(body, wanted, limits)
    for prompt in wanted.prompts:
        check_ids(prompt, wanted.param, model)
    lengths = [_answer_length(len(prompt), wanted, limits) for prompt in wanted.prompts]
    if (body.min_tokens or 0) > min(lengths):
        raise InvalidValue(
            f"min_tokens is {body.min_tokens}, but the answer ends after {min(lengths)} tokens", param="min_tokens"
        )
    params = _params(body, wanted.num_logprobs, model)
    constraint = constraint_of(body)
    requests = tuple(
        Request(
            f"{job_id}-{p}-{c}",
            prompt,
            length,
            replace(params, choice=c),
            cache_salt=body.cache_salt or "",
            constraint=constraint,
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
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )


def _check_together(body: GenerationBody, wanted: Wanted, limits: Limits) -> None:
    num_sequences = len(wanted.prompts) * (body.n or 1)
    if num_sequences > limits.max_sequences:
        raise InvalidValue(
            f"Prompts times n is {num_sequences} sequences; one request may have {limits.max_sequences}",
            param="n" if len(wanted.prompts) <= limits.max_sequences else wanted.param,
        )
    if body.stream_options is not None and not body.stream:
        raise InvalidValue("stream_options is only allowed when stream is true", param="stream_options")


def check_ids(ids: Iterable[int], param: str, model: ServedModel) -> None:
    """Raises InvalidValue for an id that the model does not have."""
    size = model.tokenizer.vocab_size
    wrong = next((i for i in ids if not 0 <= i < size), None)
    if wrong is not None:
        raise InvalidValue(
            f"{param}: token id {str(wrong)[:40]} is not in the vocabulary, 0 to {size - 1}", param=param
        )


def _answer_length(prompt_tokens: int, wanted: Wanted, limits: Limits) -> int:
    """The most tokens that the answer may have. Raises PromptTooLong with every number that matters."""
    room = limits.tokens - prompt_tokens
    asked = room if wanted.max_tokens is None else min(wanted.max_tokens, room) if wanted.cut else wanted.max_tokens
    if 1 <= asked <= room:
        return asked
    what = "KV cache holds at most" if limits.cache_tokens < limits.context_tokens else "model's context has"
    answer = f"{wanted.max_tokens} for the answer" if asked >= 1 and wanted.max_tokens else "at least 1 for the answer"
    raise PromptTooLong(
        f"The {what} {limits.tokens} tokens; the request needs {prompt_tokens} for the prompt and {answer}",
        param=wanted.param,
    )


def _params(body: GenerationBody, num_logprobs: int | None, model: ServedModel) -> SamplingParams:
    """Sampling for choice 0. The seed is drawn here when the user named none."""
    check_ids(body.logit_bias or (), "logit_bias", model)
    check_ids(body.stop_token_ids or (), "stop_token_ids", model)
    own = model.defaults
    ends = frozenset() if body.ignore_eos else model.eos_ids
    top_k = max(0, _or(body.top_k, own.top_k))  # OpenAI-like servers use -1 for "off" too
    return SamplingParams(
        temperature=_or(body.temperature, own.temperature),
        top_k=min(top_k, model.tokenizer.vocab_size),
        top_p=_or(body.top_p, own.top_p),
        min_p=_or(body.min_p, own.min_p),
        repetition_penalty=_or(body.repetition_penalty, own.repetition_penalty),
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        logit_bias=dict(body.logit_bias or {}),
        seed=secrets.randbits(63) if body.seed is None else body.seed,
        num_logprobs=num_logprobs,
        min_tokens=body.min_tokens or 0,
        stop_token_ids=tuple(sorted(ends.union(body.stop_token_ids or ()))),
    )


def _or(asked: Number | None, otherwise: Number) -> Number:
    return otherwise if asked is None else asked
