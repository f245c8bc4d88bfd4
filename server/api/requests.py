"""DELETE /v1/requests/{id}: cancel by the id that every answer carries in x-request-id."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.described import Cancelled
from server.api.errors import json_response
from server.api.guard import owner_of
from server.api.schema import describe
from server.api.serving import Serving
from server.engine.errors import RequestNotFound


def router(serving: Serving) -> APIRouter:
    """The route."""
    routes = APIRouter()

    @routes.delete(
        "/v1/requests/{request_id}", response_model=None, openapi_extra=describe(Cancelled, faults=(401, 404, 500))
    )
    async def cancel(request_id: str, request: Request) -> Response:
        """Cancel whatever runs under this id. Its client gets an error with the code `request_cancelled`."""
        count = serving.running.cancel(owner_of(request), request_id)
        if not count:
            raise RequestNotFound(f"No request with the id {request_id[:80]!r} is running", param="id")
        return json_response({"id": request_id, "object": "request", "cancelled": True})

    return routes
