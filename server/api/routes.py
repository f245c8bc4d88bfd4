"""All routes in one application, behind the door of keys. Knows no processes and no signals."""

from collections.abc import Callable, Sequence

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from server.api import (
    anthropic,
    capabilities,
    chat,
    completions,
    health,
    live,
    models,
    page,
    render,
    replay,
    requests,
    responses,
    tokenize,
)
from server.api.account import Account
from server.api.described import ANSWERS
from server.api.errors import install_handlers
from server.api.guard import RequireKey
from server.api.middleware import RequestLog
from server.api.schema import describe_types
from server.api.serving import Serving
from server.api.types import (
    ChatBody,
    CompletionBody,
    CountTokensBody,
    DetokenizeBody,
    MessagesBody,
    ReplayBody,
    ResponsesBody,
    TokenizeBody,
)
from server.api.unsupported import FAMILIES, STATELESS
from server.keys import KeyRing
from server.version import kvell_version

EXPOSED_HEADERS = ("x-request-id", "x-kvell-seed", "retry-after")

ABOUT = "OpenAI's paths and JSON, and Anthropic's Messages. A field works or is refused by name with a 400."
BODIES = (
    ChatBody,
    CompletionBody,
    CountTokensBody,
    DetokenizeBody,
    MessagesBody,
    ReplayBody,
    ResponsesBody,
    TokenizeBody,
)
ROOMS = (
    chat,
    completions,
    responses,
    anthropic,
    health,
    live,
    models,
    page,
    tokenize,
    render,
    replay,
    requests,
    capabilities,
)


def create_app(
    serving: Serving,
    *,
    keys: KeyRing | None = None,
    open_metrics: bool = False,
    origins: Sequence[str] = (),
    trace: Callable[[Account], None] | None = None,
) -> ASGIApp:
    """The routes over `serving`. With keys, every path but liveness and readiness needs one of them.

    origins: whose pages a browser lets ask; their preflight requests carry no key and learn nothing. trace hears of
    every request when it has ended.
    """
    routes = FastAPI(title="kvell", version=kvell_version(), redoc_url=None, redirect_slashes=False)
    rooms = [room.router(serving) for room in ROOMS]
    for room in rooms:
        routes.include_router(room)
    describe_types(routes, (*BODIES, *ANSWERS), ABOUT)
    install_handlers(routes)
    # outermost, so that the answers to our own faults have an id and a line, too
    app: ASGIApp = routes
    if keys is not None:
        opened = frozenset(("/metrics",)) if open_metrics else frozenset()
        app = RequireKey(routes, keys, serving.metrics, also_open=opened)
    if origins:
        app = CORSMiddleware(
            app, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=EXPOSED_HEADERS
        )
    paths = [getattr(route, "path", "") for each in (routes, *rooms) for route in each.routes]
    words = {word for path in paths for word in path.split("/") if "{" not in word}
    return RequestLog(app, trace, words=words | {*FAMILIES, *STATELESS})
