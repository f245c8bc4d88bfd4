"""Server-sent events: how a stream is written on the wire, and nothing else.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"

_encode = msgspec.json.Encoder().encode


def event(body: object) -> bytes:
    """One event. JSON has no line breaks of its own, so it is always one data line."""
    return b"data: " + _encode(body) + b"\n\n"


def named_event(name: str, body: object) -> bytes:
    """An event whose name stands before its data, as the Responses and Messages APIs have it."""
    return b"event: " + name.encode() + b"\n" + event(body)


class EventStream(Response):
    """An answer that is sent as it comes. Whoever makes `frames` also ends it when the client leaves.

    X-Accel-Buffering keeps nginx from collecting events.
    """

    def __init__(self, frames: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> None:
        self.frames = frames
        self.status_code = 200
        self.background = None
        fixed = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
        }
        self.init_headers(fixed | dict(headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Every item of `frames` is one write."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self.frames):
            async for block in self.frames:
                await send({"type": "http.response.body", "body": block, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
