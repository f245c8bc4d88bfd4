"""POST /tokenize and /detokenize: the tokenizer by itself, without the engine."""

from collections.abc import Callable

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from server.api.body import parse_object, read_body
from server.api.errors import json_response
from server.api.fields import parse
from server.api.generate import GONE, count_refusal
from server.api.messages import render
from server.api.offload import run_sized
from server.api.params import check_ids
from server.api.schema import takes
from server.api.serving import ServedModel, Serving
from server.api.types import DetokenizeBody, TokenizeBody
from server.api.wording import Fields
from server.engine.detokenizer import decode
from server.engine.errors import InvalidValue, RequestError, ServiceError
from server.metrics import Endpoint


def tokenize(raw: bytes, model: ServedModel, max_model_len: int | None) -> Fields:
    """Ids of a text or of messages, as the prompt of a request would have them."""
    body = parse(parse_object(raw), TokenizeBody)
    model.check_name(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise InvalidValue("Give either prompt or messages", param="prompt")
    if body.messages is not None:
        if body.add_special_tokens is not None:
            raise InvalidValue("The chat template writes its own special tokens", param="add_special_tokens")
        ids = render(body.messages, model, add_generation_prompt=body.add_generation_prompt is not False)
    else:
        if body.add_generation_prompt is not None:
            raise InvalidValue("Only messages have a generation prompt", param="add_generation_prompt")
        ids = tuple(model.tokenizer.encode(body.prompt or "", add_bos=body.add_special_tokens is not False))
    return {"count": len(ids), "max_model_len": max_model_len, "tokens": ids}


def detokenize(raw: bytes, model: ServedModel, max_model_len: int | None) -> Fields:
    """The text of ids. Special tokens add nothing to it; bytes that are no character become U+FFFD."""
    body = parse(parse_object(raw), DetokenizeBody)
    model.check_name(body.model)
    check_ids(body.tokens, "tokens", model)
    return {"prompt": decode(model.tokenizer, body.tokens)}


def router(serving: Serving) -> APIRouter:
    """The routes."""
    routes = APIRouter()
    work = Callable[[bytes, ServedModel, int | None], Fields]

    async def answer(request: Request, endpoint: Endpoint, do: work) -> Response:
        try:
            raw = await read_body(request)
            limit = serving.limits().tokens if serving.service.info else None
            fields = await run_sized(len(raw), lambda: do(raw, serving.model, limit), serving.worker)
        except ClientDisconnect:
            serving.metrics.request_finished(endpoint, "cancelled")
            return Response(status_code=GONE)
        except (RequestError, ServiceError) as error:
            count_refusal(serving, endpoint, error)
            raise
        serving.metrics.request_finished(endpoint, "ok")
        return json_response(fields)

    @routes.post("/tokenize", response_model=None, openapi_extra=takes(TokenizeBody))
    async def tokenize_route(request: Request) -> Response:
        """The ids that a prompt or messages become."""
        return await answer(request, "tokenize", tokenize)

    @routes.post("/detokenize", response_model=None, openapi_extra=takes(DetokenizeBody))
    async def detokenize_route(request: Request) -> Response:
        """The text of ids."""
        return await answer(request, "detokenize", detokenize)

    return routes
