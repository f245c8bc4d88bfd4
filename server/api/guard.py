"""The key before every route (law 8). Pure ASGI; what a key is and where it stands, `server.keys` knows."""

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from server.api.errors import WrongKey, error_response
from server.engine.admission import Visitor
from server.keys import Key, KeyRing
from server.metrics import Metrics

NOBODY = ""  # whose requests are when the server is open

OPEN_PATHS = frozenset(("/health", "/ready"))


class RequireKey:
    """Every path needs one of the keys, unknown ones too, so that nobody learns without a key what there is.

    also_open are paths that the operator opened. scope["state"]["key"] is the key that came; the rooms behind
    need its owner's name for fairness and for the separation of prefix caches.
    """

    def __init__(
        self, app: ASGIApp, keys: KeyRing, metrics: Metrics, *, also_open: frozenset[str] = frozenset()
    ) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics
        self._open = OPEN_PATHS | also_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or not len(self._keys):
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        key = self._keys.find(headers)
        if key is not None:
            scope.setdefault("state", {})["key"] = key
        if key is not None or scope.get("path") in self._open:
            return await self._app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        self._metrics.rejected("unauthorized")
        given = "authorization" in headers or "x-api-key" in headers
        message = "Incorrect API key provided" if given else "No API key provided; send Authorization: Bearer KEY"
        await error_response(WrongKey(message), scope["path"])(scope, receive, send)


def owner_of(request: Request) -> str:
    """The name of the owner of the key that came with this request."""
    key: Key | None = getattr(request.state, "key", None)
    return NOBODY if key is None else key.name


def visitor_of(request: Request) -> Visitor:
    """Who asks, for the door. One request that comes again has the same address, path and length."""
    client = request.client.host if request.client else ""
    mark = f"{client} {request.url.path} {request.headers.get('content-length', '')}"
    key: Key | None = getattr(request.state, "key", None)
    if key is None:
        return Visitor(mark=mark)
    limits = key.limits
    return Visitor(
        key.name, limits.max_waiting_requests, limits.max_waiting_tokens, limits.weight, mark=f"{key.name} {mark}"
    )
