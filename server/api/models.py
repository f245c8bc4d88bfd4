"""GET /v1/models and /v1/models/{id}: the one model that is served."""

from fastapi import APIRouter
from starlette.responses import Response

from server.api.described import ModelEntry, ModelList
from server.api.errors import json_response
from server.api.schema import READING, describe
from server.api.serving import Serving
from server.api.wording import Fields


def router(serving: Serving) -> APIRouter:
    """The routes. While the engine loads for the first time there is no model yet, only a 503: clients take the list
    for a sign that they can begin."""
    routes = APIRouter()

    def described() -> Fields:
        model, limits, info = serving.model, serving.limits(), serving.service.info
        assert info is not None  # else there are no limits
        return {
            "id": model.id,
            "object": "model",
            "created": model.created,
            "owned_by": "kvell",
            "max_model_len": limits.tokens,
            "context_length": limits.context_tokens,
            "digest": model.facts.digest,
            "format": model.facts.format,
            "quantization": info.quantization,
            "stored_bytes": model.facts.stored_bytes,
            "dtype": info.dtype,
            "kv_cache_dtype": info.kv_cache_dtype,
            "backend": info.backend,
            "bit_exact": info.bit_exact,
        }

    @routes.get("/v1/models", response_model=None, openapi_extra=describe(ModelList))
    async def models() -> Response:
        """The models that this server has: one."""
        return json_response({"object": "list", "data": [described()]})

    # names may hold slashes: hf:owner/name
    @routes.get(
        "/v1/models/{name:path}", response_model=None, openapi_extra=describe(ModelEntry, faults=(*READING, 404))
    )
    async def model(name: str) -> Response:
        """One model: its context, its files, and the types it is computed in."""
        serving.model.check_name(name)
        return json_response(described())

    return routes
