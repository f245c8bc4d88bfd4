"""Around every route: the request id and one log line. Pure ASGI: streams and disconnects pass untouched."""

import logging
import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

QUIET_PATHS = ("/health", "/ready", "/metrics")  # asked every few seconds by machines
SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

logger = logging.getLogger("kvell.request")


class RequestLog:
    """Gives every request an id (the client's own, if it is harmless), and writes one line when it has ended.

    scope["state"] gets `request_id`, and may get `note`: what an endpoint adds to the line. With keys, the line
    names the owner of the key, never the key.
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
            owner = f" {state['key'].name}" if "key" in state else ""
            what = f"{scope['method']} {scope['path']} {status}"
            logger.log(level, "%s in %.3f s%s %s%s", what, took, owner, state["request_id"], note and f": {note}")
