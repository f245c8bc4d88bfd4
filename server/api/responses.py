"""POST /v1/responses: OpenAI's Responses API, without a memory. Its requests run as chat requests."""

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.body import parse_object
from server.api.chat import prepare_chat
from server.api.described import ResponseAnswer, ResponseEvent
from server.api.examples import RESPONSES
from server.api.fields import parse
from server.api.generate import generate
from server.api.jobs import Job
from server.api.responses_writer import ResponsesWriter
from server.api.schema import GENERATING, describe
from server.api.serving import Limits, ServedModel, Serving
from server.api.translate import chat_of_response, reworded
from server.api.types import ResponsesBody
from server.api.wording import Face

# parts of chat fields' paths, and what they are called here
NAMES = (
    ("messages", "input"),
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    (".function.", "."),
)


def prepare(job_id: str, raw: bytes, model: ServedModel, limits: Limits) -> Job:
    """From the bytes of the body to the job. Raises RequestError."""
    body = parse(parse_object(raw), ResponsesBody)
    with reworded(NAMES):
        return replace(prepare_chat(job_id, chat_of_response(body), model, limits), asked=body)


DESCRIBED = describe(ResponseAnswer, body=ResponsesBody, chunk=ResponseEvent, faults=GENERATING, examples=RESPONSES)


def router(serving: Serving) -> APIRouter:
    """The route."""
    routes, model = APIRouter(), serving.model
    face = Face("responses", "resp_", lambda answer: ResponsesWriter(answer, model.tokenizer, model.id))

    @routes.post("/v1/responses", response_model=None, openapi_extra=DESCRIBED)
    async def responses(request: Request) -> Response:
        """Answer items of a conversation. With stream: true, server-sent events. Nothing is stored."""
        return await generate(request, serving, prepare, face)

    return routes
