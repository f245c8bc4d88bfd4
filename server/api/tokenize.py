"""POST /tokenize and /detokenize: the tokenizer by itself, without the engine."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.body import parse_object
from server.api.described import Detokenized, Tokenized
from server.api.examples import DETOKENIZE, TOKENIZE
from server.api.fields import parse
from server.api.messages import Framing, render
from server.api.params import check_ids
from server.api.pieces import located, readable
from server.api.plain import answer_at_once
from server.api.schema import ASKING, describe
from server.api.serving import ServedModel, Serving
from server.api.types import DetokenizeBody, TokenizeBody
from server.api.wording import Fields
from server.engine.detokenizer import decode
from server.engine.errors import InvalidValue


def tokenize(raw: bytes, model: ServedModel, max_model_len: int | None) -> Fields:
    """Ids of a text or of messages, as the prompt of a request would have them."""
    body = parse(parse_object(raw), TokenizeBody)
    model.check_name(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise InvalidValue("Give either prompt or messages", param="prompt")
    ids = _ids(body, model)
    fields: Fields = {"count": len(ids), "max_model_len": max_model_len, "tokens": ids}
    if not body.with_pieces:
        return fields
    text = readable(model.tokenizer, ids) if body.prompt is None else body.prompt
    return fields | {"text": text, "pieces": located(model.tokenizer, ids, text)}


def _ids(body: TokenizeBody, model: ServedModel) -> tuple[int, ...]:
    if body.messages is not None:
        if body.add_special_tokens is not None:
            raise InvalidValue("The chat template writes its own special tokens", param="add_special_tokens")
        return render(body.messages, model, Framing(add_generation_prompt=body.add_generation_prompt is not False))
    if body.add_generation_prompt is not None:
        raise InvalidValue("Only messages have a generation prompt", param="add_generation_prompt")
    return tuple(model.tokenizer.encode(body.prompt or "", add_bos=body.add_special_tokens is not False))


def detokenize(raw: bytes, model: ServedModel) -> Fields:
    """The text of ids. Special tokens add nothing to it; bytes that are no character become U+FFFD."""
    body = parse(parse_object(raw), DetokenizeBody)
    model.check_name(body.model)
    check_ids(body.tokens, "tokens", model)
    return {"prompt": decode(model.tokenizer, body.tokens)}


TOKENIZE_DESCRIBED = describe(Tokenized, body=TokenizeBody, faults=ASKING, examples=TOKENIZE)
DETOKENIZE_DESCRIBED = describe(Detokenized, body=DetokenizeBody, faults=ASKING, examples=DETOKENIZE)


def router(serving: Serving) -> APIRouter:
    """The routes."""
    routes, model = APIRouter(), serving.model

    @routes.post("/tokenize", response_model=None, openapi_extra=TOKENIZE_DESCRIBED)
    async def tokenize_route(request: Request) -> Response:
        """The ids that a prompt or messages become."""
        limit = serving.limits().tokens if serving.service.info else None
        return await answer_at_once(request, serving, "tokenize", lambda raw: tokenize(raw, model, limit))

    @routes.post("/detokenize", response_model=None, openapi_extra=DETOKENIZE_DESCRIBED)
    async def detokenize_route(request: Request) -> Response:
        """The text of ids."""
        return await answer_at_once(request, serving, "detokenize", lambda raw: detokenize(raw, model))

    return routes
