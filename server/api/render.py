"""POST /v1/completions/render and /v1/chat/completions/render: what a request would send to the model, unsent.

Every check of the real endpoint is made, so what renders here is accepted there.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api import chat, completions
from server.api.generate import Prepare
from server.api.pieces import readable
from server.api.plain import answer_at_once
from server.api.schema import takes
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


def router(serving: Serving) -> APIRouter:
    """The routes."""
    routes = APIRouter()

    @routes.post("/v1/completions/render", response_model=None, openapi_extra=takes(CompletionBody))
    async def completions_render(request: Request) -> Response:
        """What /v1/completions would send to the model for this body."""
        return await answer_at_once(request, serving, "render", lambda raw: render(raw, serving, completions.prepare))

    @routes.post("/v1/chat/completions/render", response_model=None, openapi_extra=takes(ChatBody))
    async def chat_render(request: Request) -> Response:
        """What /v1/chat/completions would send to the model for this body."""
        return await answer_at_once(request, serving, "render", lambda raw: render(raw, serving, chat.prepare))

    return routes
