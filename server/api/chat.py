"""POST /v1/chat/completions: messages under the model's chat template. The wording of OpenAI's chat completions."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from model.tokenizer.base import Tokenizer
from server.api.body import parse_object
from server.api.choices import Ending, ScoredToken
from server.api.constraints import constraint_of
from server.api.described import ChatAnswer, ChatChunk
from server.api.examples import CHAT
from server.api.fields import parse
from server.api.framing import framing_of, template_of
from server.api.generate import generate
from server.api.jobs import Job, Wanted, make_job
from server.api.logprobs import chat_logprobs
from server.api.messages import render
from server.api.schema import GENERATING, describe
from server.api.serving import Limits, ServedModel, Serving
from server.api.tools.calling import Calling, calling_of
from server.api.tools.calls import Call, CallDelta
from server.api.tools.families import family_of
from server.api.types import ChatBody
from server.api.wording import Fields, face_of
from server.engine.errors import InvalidValue
from server.engine.request import Constraint
from server.metrics import Endpoint


def prepare(job_id: str, raw: bytes, model: ServedModel, limits: Limits) -> Job:
    """From the bytes of the body to the job. Raises RequestError."""
    return prepare_chat(job_id, parse_object(raw), model, limits)


def prepare_chat(job_id: str, fields: dict[str, Any], model: ServedModel, limits: Limits) -> Job:
    """From the fields of a chat request, as JSON has them, to the job. Other APIs' requests come here translated."""
    body = parse(fields, ChatBody)
    model.check_name(body.model)
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise InvalidValue("max_tokens is the old name of max_completion_tokens; give one of both", param="max_tokens")
    if body.max_tokens == 0 and body.prompt_logprobs is None:
        message = "max_tokens is 0, so nothing would come back; only with prompt_logprobs it may be"
        raise InvalidValue(message, param="max_tokens")
    prompt, constraint, calling = put(body, model)
    wanted = Wanted(
        prompts=(prompt,),
        param="messages",
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        cut=False,
        num_logprobs=_num_logprobs(body),
        fields=fields,
        constraint=constraint,
        calling=calling,
    )
    return make_job(job_id, body, wanted, model, limits)


def put(body: ChatBody, model: ServedModel) -> tuple[tuple[int, ...], Constraint | None, Calling | None]:
    """The prompt that a chat request sends to the model, what its answer must follow, and how calls are read."""
    free, template = constraint_of(body), template_of(body, model)
    special = model.tokenizer.special_tokens
    calling = calling_of(body, free, family_of(template.text if template else "", special), special)
    prompt = render(body.messages, model, framing_of(body, template, calling.shown if calling else None))
    return prompt, calling.constraint if calling else free, calling


def _num_logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs is not None:
        raise InvalidValue("top_logprobs is only allowed when logprobs is true", param="top_logprobs")
    return None


DESCRIBED = describe(ChatAnswer, body=ChatBody, chunk=ChatChunk, faults=GENERATING, examples=CHAT)


class ChatWording:
    """chat.completion and chat.completion.chunk."""

    endpoint: Endpoint = "chat_completions"
    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

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
        message: Fields = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message = message | {"content": text or None, "tool_calls": [_whole_call(call) for call in calls]}
        return self._choice(index, {"message": message}, scored, finish)

    def opening(self, index: int, echo: str, scored: Sequence[ScoredToken] | None) -> Fields:
        """The role, which comes once and first. Clients join the string fields of deltas, roles too."""
        return self._choice(index, {"delta": {"role": "assistant", "content": "", "refusal": None}}, None, None)

    def piece(self, index: int, text: str, scored: Sequence[ScoredToken] | None, finish: Ending | None) -> Fields:
        """More content, or the end."""
        return self._choice(index, {"delta": {} if finish else {"content": text}}, scored, finish)

    def calls(self, index: int, calls: Sequence[CallDelta], scored: Sequence[ScoredToken] | None) -> Fields:
        """Parts of calls."""
        return self._choice(index, {"delta": {"tool_calls": [_part(call) for call in calls]}}, scored, None)

    def _choice(self, index: int, said: Fields, scored: Sequence[ScoredToken] | None, finish: Ending | None) -> Fields:
        logprobs = None if scored is None else chat_logprobs(self._tokenizer, scored)
        return {"index": index} | said | {"logprobs": logprobs, "finish_reason": finish}


def _whole_call(call: Call) -> Fields:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _part(call: CallDelta) -> Fields:
    """A call's first part says what it is; the others are arguments only."""
    if call.id is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": call.index, "id": call.id, "type": "function", "function": function}


def router(serving: Serving) -> APIRouter:
    """The route."""
    routes, face = APIRouter(), face_of(ChatWording(serving.model.tokenizer), serving)

    @routes.post("/v1/chat/completions", response_model=None, openapi_extra=DESCRIBED)
    async def chat_completions(request: Request) -> Response:
        """Answer a conversation. With stream: true, server-sent events."""
        return await generate(request, serving, prepare, face)

    return routes
