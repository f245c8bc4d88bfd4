"""Around every route: a request's id, its account and its line in the log. Pure ASGI: streams pass untouched."""

import logging
import re
import secrets
import time
from collections.abc import Callable
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.api.account import Account

QUIET_PATHS = ("/health", "/ready", "/metrics")  # asked every few seconds by machines
SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_PATH = 200  # characters in the log

logger = logging.getLogger("kvell.request")


class RequestLog:
    """Gives every request an id (the client's own, if it is harmless), and writes one line when it has ended.

    scope["state"] gets `request_id` and `account`, which endpoints fill in. With keys, the line names the owner of the
    key, never the key. trace hears of each account that is closed, may add to its fields, and must not fail.
    """

    def __init__(self, app: ASGIApp, trace: Callable[[Account], None] | None = None) -> None:
        self._app = app
        self._trace = trace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        account = _open(scope)
        state = scope.setdefault("state", {})
        state["request_id"], state["account"] = account.request_id, account

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                account.status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = account.request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            account.key = state["key"].name if "key" in state else ""
            account.close(time.monotonic() - account.arrived)
            if self._trace is not None:
                self._trace(account)
            _write(account)


def _open(scope: Scope) -> Account:
    headers = Headers(scope=scope)
    theirs = headers.get("x-request-id", "")
    return Account(
        request_id=theirs if SANE_ID.fullmatch(theirs) else secrets.token_hex(12),
        method=scope["method"],
        path=scope["path"],
        arrived=time.monotonic(),
        traceparent=headers.get("traceparent", ""),
        tracestate=headers.get("tracestate", ""),
    )


def _write(account: Account) -> None:
    level = logging.DEBUG if account.path in QUIET_PATHS else logging.INFO
    if not logger.isEnabledFor(level):
        return
    # quoted, as a path may hold spaces and line breaks, and look like more of the line
    path = quote(account.path, safe="/:@!$,~", errors="replace")[:MAX_PATH]
    fields = {"status": account.status, "outcome": account.outcome, "id": account.request_id} | _known(
        key=account.key, endpoint=account.endpoint, error=account.error
    )
    if (generated := account.generated) is not None:
        fields |= _known(
            answer=generated.answer_id,
            prompt_tokens=generated.prompt_tokens,
            cached_tokens=generated.cached_tokens,
            output_tokens=generated.output_tokens,
            queue_s=generated.queue_s,
            first_token_s=generated.first_token_s,
            prompts=generated.prompts or None,
            answers=generated.answers or None,
        )
    fields |= {"total_s": account.total_s} | account.fields
    logger.log(level, "%s %s", account.method, path, extra={"fields": fields})


def _known(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None and value != ""}
