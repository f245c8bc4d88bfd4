"""POST /v1/completions: a prompt goes on. The wording of OpenAI's legacy completions."""

from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from model.tokenizer.base import Tokenizer
from server.api.body import parse_object
from server.api.choices import Ending, ScoredToken
from server.api.constraints import constraint_of
from server.api.described import CompletionAnswer, CompletionChunk
from server.api.examples import COMPLETIONS
from server.api.fields import parse
from server.api.generate import generate
from server.api.jobs import Job, Wanted, make_job
from server.api.logprobs import completion_logprobs
from server.api.schema import GENERATING, describe
from server.api.serving import Limits, ServedModel, Serving
from server.api.tools.calls import Call, CallDelta
from server.api.types import CompletionBody, Prompt
from server.api.wording import Fields, face_of
from server.engine.detokenizer import decode
from server.engine.errors import InvalidValue
from server.metrics import Endpoint

DEFAULT_MAX_TOKENS = 16  # OpenAI's


def prepare(job_id: str, raw: bytes, model: ServedModel, limits: Limits) -> Job:
    """From the bytes of the body to the job. Raises RequestError."""
    fields = parse_object(raw)
    body = parse(fields, CompletionBody)
    model.check_name(body.model)
    _check(body)
    prompts = tuple(_ids(prompt, model) for prompt in body.prompt)
    wanted = Wanted(
        prompts=prompts,
        param="prompt",
        max_tokens=DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
        cut=body.max_tokens is None,
        num_logprobs=body.logprobs,
        best_of=body.best_of,
        fields=fields,
        echoes=tuple(_text(prompt, model) for prompt in body.prompt) if body.echo else (),
        constraint=constraint_of(body),
    )
    return make_job(job_id, body, wanted, model, limits)


def _check(body: CompletionBody) -> None:
    if body.max_tokens == 0 and not body.echo and body.prompt_logprobs is None:
        message = "max_tokens is 0, so nothing would come back; only with echo or prompt_logprobs it may be"
        raise InvalidValue(message, param="max_tokens")
    n = body.n or 1
    if body.best_of is not None and body.best_of < n:
        raise InvalidValue(f"best_of is {body.best_of}, but n is {n}; it must be at least as many", param="best_of")
    if body.best_of is not None and body.best_of > n and body.stream:
        raise InvalidValue("best_of above n is not allowed when stream is true", param="best_of")


def _ids(prompt: Prompt, model: ServedModel) -> tuple[int, ...]:
    """A prompt's ids. An empty one is the beginning of a text, where the model has a token for that."""
    ids = tuple(model.tokenizer.encode(prompt, add_bos=True)) if isinstance(prompt, str) else prompt
    if ids:
        return ids
    if model.tokenizer.bos_id is None:
        raise InvalidValue("prompt is empty, and this model has no token to begin a text with", param="prompt")
    return (model.tokenizer.bos_id,)


def _text(prompt: Prompt, model: ServedModel) -> str:
    return prompt if isinstance(prompt, str) else decode(model.tokenizer, prompt)


DESCRIBED = describe(
    CompletionAnswer, body=CompletionBody, chunk=CompletionChunk, faults=GENERATING, examples=COMPLETIONS
)


class CompletionWording:
    """text_completion, whole and in chunks."""

    endpoint: Endpoint = "completions"
    id_prefix = "cmpl-"
    whole_object = chunk_object = "text_completion"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def whole(
        self,
        index: int,
        text: str,
        scored: Sequence[ScoredToken] | None,
        finish: Ending | None,
        calls: Sequence[Call] = (),
    ) -> Fields:
        """A choice of an answer in one piece."""
        logprobs = None if scored is None else completion_logprobs(self._tokenizer, scored)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def opening(self, index: int, echo: str, scored: Sequence[ScoredToken] | None) -> Fields | None:
        """The prompt, where it is to be repeated."""
        return self.whole(index, echo, scored, None) if echo else None

    def piece(self, index: int, text: str, scored: Sequence[ScoredToken] | None, finish: Ending | None) -> Fields:
        """A chunk has the same form as the whole."""
        return self.whole(index, text, scored, finish)

    def calls(self, index: int, calls: Sequence[CallDelta], scored: Sequence[ScoredToken] | None) -> Fields:
        """There are no tools here."""
        raise AssertionError("a completion called a tool")


def router(serving: Serving) -> APIRouter:
    """The route."""
    routes, face = APIRouter(), face_of(CompletionWording(serving.model.tokenizer), serving)

    @routes.post("/v1/completions", response_model=None, openapi_extra=DESCRIBED)
    async def completions(request: Request) -> Response:
        """Go on with a text. With stream: true, server-sent events."""
        return await generate(request, serving, prepare, face)

    return routes
