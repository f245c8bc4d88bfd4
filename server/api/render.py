"""POST /v1/completions/render and /v1/chat/completions/render: what a request would send to the model, unsent.

Every check of the real endpoint is made, so what renders here is accepted there.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api import chat, completions
from server.api.described import Rendered
from server.api.examples import CHAT, COMPLETIONS
from server.api.generate import Prepare
from server.api.pieces import readable
from server.api.plain import answer_at_once
from server.api.schema import ASKING, describe
from server.api.serving import Serving
from server.api.types import ChatBody, CompletionBody
from server.api.wording import Fields


def render(raw: bytes, serving: Serving, prepare: Prepare) -> Fields:
    """The prompts in text and ids; in the text special tokens read as their names. Raises what the endpoint raises."""
    job = prepare("render", raw, serving.model, serving.limits())
    prompts = [
        {
            "text": readable(serving.model.tokenizer, request.prompt),
            "tokens": request.prompt,
            "count": len(request.prompt),
            "max_tokens": request.max_tokens,
        }
        for request in job.requests[:: job.choices_per_prompt]
    ]
    return {"object": "render", "model": serving.model.id, "prompts": prompts}


COMPLETIONS_DESCRIBED = describe(Rendered, body=CompletionBody, faults=ASKING, examples=COMPLETIONS)
CHAT_DESCRIBED = describe(Rendered, body=ChatBody, faults=ASKING, examples=CHAT)


def router(serving: Serving) -> APIRouter:
    """The routes."""
    routes = APIRouter()

    @routes.post("/v1/completions/render", response_model=None, openapi_extra=COMPLETIONS_DESCRIBED)
    async def completions_render(request: Request) -> Response:
        """What /v1/completions would send to the model for this body."""
        return await answer_at_once(request, serving, "render", lambda raw: render(raw, serving, completions.prepare))

    @routes.post("/v1/chat/completions/render", response_model=None, openapi_extra=CHAT_DESCRIBED)
    async def chat_render(request: Request) -> Response:
        """What /v1/chat/completions would send to the model for this body."""
        return await answer_at_once(request, serving, "render", lambda raw: render(raw, serving, chat.prepare))

    return routes
