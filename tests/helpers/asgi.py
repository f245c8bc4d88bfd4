"""Calls an ASGI application as a server would, and lets a test leave in the middle. No sockets."""

import asyncio
import json
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp


@dataclass(slots=True)
class Answered:
    """What came back: blocks has one entry per write."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    raw_headers: list[tuple[str, str]] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)
    complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.blocks)

    def every_header(self, name: str) -> list[str]:
        """All lines of one header, in order."""
        return [value for each, value in self.raw_headers if each == name]

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object; the shape is checked on the way."""
        body = self.json()
        assert set(body) == {"error"}, body
        assert set(body["error"]) == {"message", "type", "param", "code"}, body
        assert isinstance(body["error"]["message"], str)
        assert body["error"]["message"]
        error: dict[str, Any] = body["error"]
        return error

    def events(self) -> list[Any]:
        """The stream's events by the rules of SSE, JSON decoded; comments are left out."""
        text = self.body.decode()
        assert text.endswith("\n\n"), text[-40:]
        found = []
        for block in text.removesuffix("\n\n").split("\n\n"):
            assert "\n" not in block, f"an event of several lines: {block!r}"
            if block.startswith(":"):
                continue
            assert block.startswith("data: "), block
            data = block.removeprefix("data: ")
            found.append(data if data == "[DONE]" else json.loads(data))
        return found

    def named_events(self) -> list[dict[str, Any]]:
        """Events whose name stands before their data, and in it as `type`; comments are left out."""
        found = []
        for block in self.body.decode().removesuffix("\n\n").split("\n\n"):
            if block.startswith(":"):
                continue
            name, data = block.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}", block
            found.append(event)
        return found

    def chunks(self) -> list[dict[str, Any]]:
        """The events between the beginning and [DONE], which must be there once, at the end."""
        events = self.events()
        assert events.count("[DONE]") == 1
        assert events[-1] == "[DONE]"
        return events[:-1]


class Call:
    """One HTTP request under way. `leave()` is the client's hanging up."""

    def __init__(
        self,
        app: ASGIApp,
        method: str,
        path: str,
        body: Iterable[bytes] = (),
        headers: dict[str, str] | None = None,
        *,
        endless: bool = False,
    ) -> None:
        self._endless = endless  # the body's end never comes
        self.answered = Answered()
        self._body = list(body)
        self._left = asyncio.Event()
        self._wrote = asyncio.Event()
        raw = [(k.lower().encode(), v.encode("latin-1")) for k, v in (headers or {}).items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": raw,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._body is not None and (self._body or not (self.answered.status or self._endless)):
            part = self._body.pop(0) if self._body else b""
            more = bool(self._body) or self._endless
            if not more:
                self._body = None  # type: ignore[assignment]
            return {"type": "http.request", "body": part, "more_body": more}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.answered.status = message["status"]
            self.answered.raw_headers = [(k.decode(), v.decode("latin-1")) for k, v in message["headers"]]
            self.answered.headers = dict(self.answered.raw_headers)
        elif message.get("body"):
            self.answered.blocks.append(bytes(message["body"]))
        self.answered.complete = message["type"] == "http.response.body" and not message.get("more_body")
        self._wrote.set()

    def leave(self) -> None:
        self._left.set()

    async def wrote(self) -> None:
        """Until something more has been sent."""
        self._wrote.clear()
        await asyncio.wait_for(self._wrote.wait(), 10)

    async def done(self) -> Answered:
        await asyncio.wait_for(self.task, 10)
        return self.answered


async def call(
    app: ASGIApp, method: str, path: str, body: object = None, *, raw: bytes | None = None, **headers: str
) -> Answered:
    """The whole answer to one request. Header names have _ for -."""
    content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    named = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return await Call(app, method, path, [content], named).done()
