"""GET /health, /ready and /metrics: open questions about the process, answered whatever the engine does."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.described import Health, Readiness
from server.api.errors import json_response
from server.api.schema import describe
from server.api.serving import Serving

READY_DESCRIBED = describe(Readiness, faults=())
READY_DESCRIBED["responses"]["503"] = READY_DESCRIBED["responses"]["200"] | {"description": "Not ready, and why."}
FIGURES = {"text/plain": {"schema": {"type": "string"}}, "application/openmetrics-text": {"schema": {"type": "string"}}}
METRICS_DESCRIBED = {"responses": {"200": {"description": "All figures.", "content": FIGURES}}}


def router(serving: Serving) -> APIRouter:
    """The routes."""
    routes = APIRouter()

    @routes.head("/health", response_model=None, include_in_schema=False)
    @routes.get("/health", response_model=None, openapi_extra=describe(Health, faults=()))
    async def health() -> Response:
        """Liveness: this process answers. Restarting it because the engine is busy or restarting would help nobody."""
        return json_response({"status": "ok"})

    @routes.head("/ready", response_model=None, include_in_schema=False)
    @routes.get("/ready", response_model=None, openapi_extra=READY_DESCRIBED)
    async def ready() -> Response:
        """Readiness: the engine makes progress and new work is welcome."""
        service = serving.service
        if service.ready:
            return json_response({"status": "ready", "state": service.state})
        return json_response({"status": "not ready", "state": service.state, "reason": service.reason}, status=503)

    @routes.get("/metrics", response_model=None, openapi_extra=METRICS_DESCRIBED)
    async def metrics(request: Request) -> Response:
        """All figures, in the format that the scraper asks for."""
        body, content_type = serving.metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type, "cache-control": "no-store"})

    return routes
