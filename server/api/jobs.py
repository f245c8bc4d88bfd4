"""From a checked body to the engine's `Request`s: defaults, ranges that depend on the model, the length of the answer.

Shared by chat and completions. Pure: no waiting, no HTTP, so that big inputs can be prepared on a worker thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from server.api.constraints import constraint_of
from server.api.params import check_ids, sampling_params
from server.api.serving import Limits, ServedModel
from server.api.types import GenerationBody, Wire
from server.engine.detokenizer import decode
from server.engine.errors import InvalidValue, PromptTooLong
from server.engine.request import Request


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request for text, ready to run. requests[p * n + c] is choice c of prompt p.

    echoes has one text per prompt, to be put before each of its answers. include_stop: the stop string that ends an
    answer is part of it. timeout_s: the answer is to be complete so long after the request came.
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
    wanted = _truncated(wanted, body.truncate_prompt_tokens, model)
    lengths = [_answer_length(len(prompt), wanted, limits) for prompt in wanted.prompts]
    if (body.min_tokens or 0) > min(lengths):
        raise InvalidValue(
            f"min_tokens is {body.min_tokens}, but the answer ends after {min(lengths)} tokens", param="min_tokens"
        )
    params = sampling_params(body, wanted.num_logprobs, model)
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
        include_stop=bool(body.include_stop_str_in_output),
        timeout_s=None if body.timeout_ms is None else body.timeout_ms / 1000,
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


def _check_together(body: GenerationBody, wanted: Wanted, limits: Limits) -> None:
    num_sequences = len(wanted.prompts) * (body.n or 1)
    if num_sequences > limits.max_sequences:
        raise InvalidValue(
            f"Prompts times n is {num_sequences} sequences; one request may have {limits.max_sequences}",
            param="n" if len(wanted.prompts) <= limits.max_sequences else wanted.param,
        )
    if body.stream_options is not None and not body.stream:
        raise InvalidValue("stream_options is only allowed when stream is true", param="stream_options")


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
