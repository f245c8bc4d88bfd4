"""Around every route: the request id, the key, one log line. Pure ASGI: streams and disconnects pass untouched."""

import hmac
import logging
import re
import secrets
import time
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.api.errors import WrongKey, error_response
from server.metrics import Metrics

OPEN_PATHS = ("/health", "/ready")
QUIET_PATHS = ("/health", "/ready", "/metrics")  # asked every few seconds by machines
SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

logger = logging.getLogger("kvell.request")


class RequestLog:
    """Gives every request an id (the client's own, if it is harmless), and writes one line when it has ended.

    scope["state"] gets `request_id`, and may get `note`: what an endpoint adds to the line.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, status = time.monotonic(), 499
        state = scope.setdefault("state", {})
        theirs = Headers(scope=scope).get("x-request-id", "")
        state["request_id"] = theirs if SANE_ID.fullmatch(theirs) else secrets.token_hex(12)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = state["request_id"]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            level = logging.DEBUG if scope["path"] in QUIET_PATHS else logging.INFO
            took, note = time.monotonic() - began, state.get("note", "")
            line = "%s %s %d in %.3f s %s%s"
            logger.log(
                level, line, scope["method"], scope["path"], status, took, state["request_id"], note and f": {note}"
            )


class RequireKey:
    """Every path needs one of the keys, unknown ones too, so that nobody learns without a key what there is."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], metrics: Metrics) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope.get("path") in OPEN_PATHS or self._opens(scope):
            return await self._app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        self._metrics.rejected("unauthorized")
        given = "authorization" in Headers(scope=scope)
        message = "Incorrect API key provided" if given else "No API key provided; send Authorization: Bearer KEY"
        await error_response(WrongKey(message))(scope, receive, send)

    def _opens(self, scope: Scope) -> bool:
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        # every key is compared, and in constant time, so that the time taken says nothing about them
        matches = [hmac.compare_digest(given.strip().encode("latin-1"), key) for key in self._keys]
        return scheme.lower() == "bearer" and any(matches)
