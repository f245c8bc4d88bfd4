"""OpenAI's and Anthropic's endpoints that kvell does not serve say so, instead of looking like a mistyped path."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.serving import Serving
from server.engine.errors import UnsupportedEndpoint

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]

# Families of paths below /v1: each name, and everything under it. What is served beside them is matched first.
FAMILIES = (
    "assistants",
    "audio",
    "batches",
    "chatkit",
    "complete",
    "containers",
    "conversations",
    "edits",
    "embeddings",
    "engines",
    "evals",
    "files",
    "fine-tunes",
    "fine_tuning",
    "images",
    "moderations",
    "organization",
    "projects",
    "realtime",
    "rerank",
    "skills",
    "threads",
    "uploads",
    "vector_stores",
    "videos",
)
# Served themselves, but nothing is kept that could be found under them.
STATELESS = ("chat/completions", "messages", "responses")


def router(serving: Serving) -> APIRouter:
    """The routes; they come after all others."""
    routes = APIRouter()
    paths = [f"/v1/{name}" for name in FAMILIES]
    below = [f"/v1/{name}/{{id}}{rest}" for name in (*FAMILIES, *STATELESS) for rest in ("", "/{rest:path}")]

    async def refuse(request: Request) -> Response:
        serving.metrics.rejected(UnsupportedEndpoint.code)
        raise UnsupportedEndpoint(
            f"{request.method} {request.url.path[:200]} is not served by kvell; /v1/capabilities lists what is"
        )

    for path in paths + below:
        routes.add_api_route(path, refuse, methods=METHODS, response_model=None, include_in_schema=False)
    return routes
