"""GET /live: how the server does, twice a second, as server-sent events, for the page at / and for `kvell top`.

Costs nothing while nobody watches: only then is the engine asked for pictures of its blocks.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.serving import Serving
from server.api.sse import EventStream, event
from server.api.wording import Fields
from server.engine.errors import TooBusy

INTERVAL_MS = 500
MAX_WATCHERS = 64  # more than that is no longer people


class _Feed:
    """What watchers see, and how many they are."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._watchers = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._watchers += 1
        if self._watchers == 1:
            self._serving.service.watch(INTERVAL_MS)
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._serving.service.watch(0)

    @property
    def full(self) -> bool:
        return self._watchers >= MAX_WATCHERS

    @property
    def over(self) -> bool:
        """The server shuts down: a stream without end would hold it up."""
        return self._serving.service.state in ("draining", "stopped")

    def now(self) -> Fields:
        """One look."""
        service, figures = self._serving.service, self._serving.metrics.live()
        pictures = [{"blocks_per_cell": each.blocks_per_cell, "runs": each.runs} for each in service.picture]
        return {"model": self._serving.model.id, "state": service.state, "picture": pictures} | figures


EVENTS = {"text/event-stream": {"schema": {"type": "object", "description": "An event every half second."}}}
DESCRIBED = {"responses": {"200": {"description": "The figures, again and again.", "content": EVENTS}}}


def router(serving: Serving) -> APIRouter:
    """The route."""
    routes = APIRouter()
    feed = _Feed(serving)

    @routes.get("/live", response_model=None, openapi_extra=DESCRIBED)
    async def live(request: Request) -> Response:
        """An event every half second: rates, running and waiting sequences, and a picture of the KV cache's blocks."""
        if feed.full:
            raise TooBusy(f"{MAX_WATCHERS} clients are watching; that is the limit", retry_after=5)
        return EventStream(_frames(feed, request), {})

    return routes


async def _frames(feed: _Feed, request: Request) -> AsyncGenerator[bytes, None]:
    gone = asyncio.create_task(_until_gone(request))
    try:
        with feed.watching():
            while not (gone.done() or feed.over):
                yield event(feed.now())
                await asyncio.wait((gone,), timeout=INTERVAL_MS / 1000)
    finally:
        gone.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
