"""Around every route: a request's id, its account and its line in the log. Pure ASGI: streams pass untouched."""

import logging
import re
import secrets
import time
from collections.abc import Callable, Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.api.account import Account

QUIET_PATHS = ("/health", "/ready", "/metrics")  # asked every few seconds by machines
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"))
HIDDEN = "*"  # stands for a word that a client made up: it may be a key, or part of a prompt
SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_PATH = 200  # characters in the log

logger = logging.getLogger("kvell.request")


class RequestLog:
    """Gives every request an id (the client's own, if it is harmless), and writes one line when it has ended.

    scope["state"] gets `request_id` and `account`, which endpoints fill in. With keys, the line names the owner of the
    key, never the key, and of its path only those words that some route has. trace hears of each account that is
    closed, may add to its fields, and must not fail.
    """

    def __init__(
        self, app: ASGIApp, trace: Callable[[Account], None] | None = None, *, words: Collection[str] = ()
    ) -> None:
        self._app = app
        self._trace = trace
        self._words = frozenset(words) | {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        account = _open(scope, self._words)
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


def _open(scope: Scope, words: Collection[str]) -> Account:
    headers = Headers(scope=scope)
    theirs = headers.get("x-request-id", "")
    return Account(
        request_id=theirs if SANE_ID.fullmatch(theirs) else secrets.token_hex(12),
        method=scope["method"] if scope["method"] in METHODS else HIDDEN,
        path="/".join(word if word in words else HIDDEN for word in scope["path"].split("/")),
        arrived=time.monotonic(),
        traceparent=headers.get("traceparent", ""),
        tracestate=headers.get("tracestate", ""),
    )


def _write(account: Account) -> None:
    level = logging.DEBUG if account.path in QUIET_PATHS else logging.INFO
    if not logger.isEnabledFor(level):
        return
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
    logger.log(level, "%s %s", account.method, account.path[:MAX_PATH], extra={"fields": fields})


def _known(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None and value != ""}
