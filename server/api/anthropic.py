"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API. Its requests run as chat requests."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.anthropic_writer import MessagesWriter
from server.api.body import parse_object
from server.api.chat import prepare_chat, put
from server.api.described import MessageAnswer, MessageEvent, TokensCount
from server.api.examples import COUNT_TOKENS, MESSAGES
from server.api.fields import parse
from server.api.generate import generate
from server.api.jobs import Job
from server.api.plain import answer_at_once
from server.api.schema import ASKING, GENERATING, describe
from server.api.serving import Limits, ServedModel, Serving
from server.api.translate import chat_of_messages, reworded
from server.api.types import ChatBody, CountTokensBody, MessagesBody
from server.api.wording import Face, Fields

# parts of chat fields' paths, and what they are called here
NAMES = (
    ("max_completion_tokens", "max_tokens"),
    ("response_format.json_schema", "output_config.format"),
    (".function.parameters", ".input_schema"),
    (".function.", "."),
)


def prepare(job_id: str, raw: bytes, model: ServedModel, limits: Limits) -> Job:
    """From the bytes of the body to the job. Raises RequestError."""
    body = parse(parse_object(raw), MessagesBody)
    with reworded(NAMES):
        return prepare_chat(job_id, chat_of_messages(body), model, limits)


def count_tokens(raw: bytes, model: ServedModel) -> Fields:
    """How long the prompt of these messages is. Raises RequestError."""
    body = parse(parse_object(raw), CountTokensBody)
    model.check_name(body.model)
    with reworded(NAMES):
        chat = parse(chat_of_messages(body), ChatBody)
        return {"input_tokens": len(put(chat, model)[0])}


DESCRIBED = describe(
    MessageAnswer, body=MessagesBody, chunk=MessageEvent, faults=GENERATING, error="MessagesError", examples=MESSAGES
)
COUNT_DESCRIBED = describe(
    TokensCount, body=CountTokensBody, faults=ASKING, error="MessagesError", examples=COUNT_TOKENS
)


def router(serving: Serving) -> APIRouter:
    """The routes."""
    routes, model = APIRouter(), serving.model
    face = Face("messages", "msg_", lambda answer: MessagesWriter(answer, model.id))

    @routes.post("/v1/messages", response_model=None, openapi_extra=DESCRIBED)
    async def messages(request: Request) -> Response:
        """Answer a conversation, as Anthropic's clients ask for it. With stream: true, server-sent events."""
        return await generate(request, serving, prepare, face)

    @routes.post("/v1/messages/count_tokens", response_model=None, openapi_extra=COUNT_DESCRIBED)
    async def count(request: Request) -> Response:
        """How many tokens the prompt of such a request has."""
        return await answer_at_once(request, serving, "count_tokens", lambda raw: count_tokens(raw, model))

    return routes
