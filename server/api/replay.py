"""POST /v1/replay: an answer once more, from its receipt. On native kernels its choices are the same, byte for byte.

The receipt is read like any request: the endpoint it came from checks its fields, and its ids and limits are checked
here. Only another model and other kernels are refused for what they are.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api import chat, completions
from server.api.answer import Answer
from server.api.body import parse_object
from server.api.choices import ScoredToken
from server.api.described import ReplayAnswer
from server.api.fields import parse
from server.api.generate import Prepare, generate
from server.api.jobs import Job
from server.api.params import check_ids
from server.api.receipts import digest_of, identity
from server.api.schema import GENERATING, describe
from server.api.serving import Limits, Serving
from server.api.types import Receipt, ReplayBody
from server.api.wording import Face, Fields, Wording, Writer
from server.engine.errors import CannotReplay, InvalidValue, PromptTooLong
from server.engine.request import Request as TokenRequest

PREPARES: dict[str, Prepare] = {"completions": completions.prepare, "chat_completions": chat.prepare}
DESCRIBED = describe(ReplayAnswer, body=ReplayBody, faults=GENERATING)
NO_LIMIT = 2**31  # the receipt says how long each answer may get


def prepare_replay(job_id: str, raw: bytes, serving: Serving, limits: Limits) -> Job:
    """The job that the receipt tells of. Raises RequestError."""
    receipt = parse(parse_object(raw), ReplayBody).receipt
    for name, mine in identity(serving).items():
        its = getattr(receipt, name)
        if its != mine:
            message = f"receipt.{name} is {its[:80]!r}, but here it is {mine!r}: the answer would be another"
            raise CannotReplay(message, param=f"receipt.{name}")
    roomy = Limits(NO_LIMIT, NO_LIMIT, limits.max_sequences)
    job = PREPARES[receipt.endpoint](job_id, msgspec.json.encode(receipt.request), serving.model, roomy)
    _check(job, receipt, serving, limits)
    return replace(job, requests=_resolved(job, receipt), asked=receipt)


def _check(job: Job, receipt: Receipt, serving: Serving, limits: Limits) -> None:
    """What no endpoint has checked yet."""
    if job.stream:
        raise InvalidValue("receipt.request.stream: a replay comes in one piece", param="receipt.request.stream")
    for name, wanted in (("prompt_token_ids", job.num_prompts), ("max_tokens", len(job.requests))):
        if len(getattr(receipt, name)) != wanted:
            raise InvalidValue(f"receipt.{name} should have {wanted} entries", param=f"receipt.{name}")
    for ids in receipt.prompt_token_ids:
        check_ids(ids, "receipt.prompt_token_ids", serving.model)
    for index, length in enumerate(receipt.max_tokens):
        prompt_tokens = len(receipt.prompt_token_ids[index // job.choices_per_prompt])
        if prompt_tokens + length > limits.tokens:
            message = f"{prompt_tokens} tokens of prompt and {length} of answer pass the limit of {limits.tokens} here"
            raise PromptTooLong(message, param="receipt.max_tokens")


def _resolved(job: Job, receipt: Receipt) -> tuple[TokenRequest, ...]:
    """The requests with the receipt's prompts and limits, which a clock or a default may have had a say in."""
    return tuple(
        msgspec.structs.replace(
            request, prompt=tuple(receipt.prompt_token_ids[index // job.choices_per_prompt]), max_tokens=length
        )
        for index, (request, length) in enumerate(zip(job.requests, receipt.max_tokens, strict=True))
    )


class ReplayWriter(Writer):
    """The choices in the words of the endpoint that the receipt is from, and whether they are the same."""

    def whole(self, texts: Sequence[str], scored: Sequence[Sequence[ScoredToken]]) -> Fields:
        """The answer in one piece; there is no other."""
        receipt = self._job.asked
        assert isinstance(receipt, Receipt), "a replay is asked for by a receipt"
        choices = self.choices(texts, scored)
        same = digest_of(choices) == receipt.choices_sha256
        return self._head | {"object": "replay", "choices": choices, "usage": self._answer.usage(), "same": same}


def router(serving: Serving) -> APIRouter:
    """The route."""
    routes, tokenizer = APIRouter(), serving.model.tokenizer
    wordings: dict[str, Wording] = {
        "completions": completions.CompletionWording(tokenizer),
        "chat_completions": chat.ChatWording(tokenizer),
    }

    def writer(answer: Answer) -> Writer:
        receipt = answer.job.asked
        assert isinstance(receipt, Receipt), "a replay is asked for by a receipt"
        return ReplayWriter(answer, wordings[receipt.endpoint], serving)

    face = Face("replay", "replay-", writer)

    @routes.post("/v1/replay", response_model=None, openapi_extra=DESCRIBED)
    async def replay(request: Request) -> Response:
        """The same choices again, from the receipt of an answer."""
        prepare: Prepare = lambda job_id, raw, model, limits: prepare_replay(job_id, raw, serving, limits)  # noqa: E731
        return await generate(request, serving, prepare, face)

    return routes
