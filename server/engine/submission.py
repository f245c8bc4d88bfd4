"""Requests that were submitted together, as their consumer sees them: one stream of events. Runs in the API process.

What a slow consumer has not taken yet is joined per request, so that a token of a backlog costs a few bytes and not an
event. One that falls too far behind is given up: its requests are cancelled, and it gets an error behind what there is.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self

import msgspec

from server.engine.errors import ClientTooSlow, RequestError, ServiceError
from server.engine.request import TokenEvent

MAX_BACKLOG = 262_144  # tokens and alternatives to them, all requests together; some 20 MB
JOIN_EVERY = 64  # events of one request


class OnDrop(Protocol):
    """Told what the consumer no longer wants, how many of the tokens that had come it never took, and whether it has
    all that it wanted."""

    def __call__(self, request_ids: Sequence[str], unread_tokens: int, *, answered: bool) -> None: ...


class Submission:
    """The events of its requests, each request's in order, until every one has finished: `batch`, or `async for`.

    Use it as a context manager: leaving it cancels what is unfinished.
    """

    def __init__(self, request_ids: Iterable[str], on_drop: OnDrop) -> None:
        self._open = dict.fromkeys(request_ids)  # not finished as far as the consumer knows; a dict keeps the order
        self._pending: dict[str, list[TokenEvent]] = {}
        self._on_drop = on_drop
        self._failure: RequestError | ServiceError | None = None
        self._wake = asyncio.Event()
        self._backlog = 0  # tokens in `_pending`, and alternatives to them
        self.admitted = False  # the engine has begun with at least one of the requests

    # the consumer's side

    async def batch(self) -> Sequence[TokenEvent]:
        """Wait for events, then take all that are there, at most one per request. Empty once all have finished.

        Giving up the wait loses nothing. Raises ServiceError when the engine dies or the server shuts down,
        RequestError when the engine died of this request.
        """
        while not self._pending:
            if self._failure is not None:
                raise self._failure
            if not self._open:
                return ()
            self._wake.clear()
            await self._wake.wait()
        pending, self._pending, self._backlog = self._pending, {}, 0
        for request_id, events in pending.items():
            if events[-1].finish is not None:
                del self._open[request_id]
        return [_join(events) for events in pending.values()]

    async def __aiter__(self) -> AsyncIterator[TokenEvent]:
        """Event by event."""
        while events := await self.batch():
            for event in events:
                yield event

    def cancel(self, request_id: str | None = None) -> None:
        """No more events of this request, which said enough, or (None) of any; the engine drops it. No-op once it has
        finished."""
        dropped = list(self._open) if request_id is None else [request_id] if request_id in self._open else []
        if not dropped:
            return
        unread = sum(len(event.tokens) for each in dropped for event in self._pending.pop(each, ()))
        for each in dropped:
            del self._open[each]
        self._wake.set()
        self._on_drop(dropped, unread, answered=request_id is not None)

    def close(self) -> None:
        """Cancel whatever is unfinished."""
        self.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # the service's side

    def push(self, event: TokenEvent) -> None:
        """An event of one of the requests came."""
        self.admitted = True
        events = self._pending.setdefault(event.request_id, [])
        events.append(event)
        if len(events) == JOIN_EVERY:
            events[:] = [_join(events)]
        self._wake.set()
        self._backlog += len(event.tokens) + sum(len(entry.top_ids) for entry in event.logprobs)
        if self._backlog > MAX_BACKLOG and self._failure is None:
            message = f"This stream was read too slowly: {self._backlog} tokens and alternatives to them waited for it"
            self.fail(ClientTooSlow(f"{message}; the limit is {MAX_BACKLOG}"))
            self._on_drop([each for each in self._open if self._unfinished(each)], 0, answered=False)

    def _unfinished(self, request_id: str) -> bool:
        pending = self._pending.get(request_id)
        return not pending or pending[-1].finish is None

    def fail(self, error: RequestError | ServiceError) -> None:
        """Nothing more will come. What came before is still handed out, then the error is raised."""
        self._failure = error
        self._wake.set()


def _join(events: Sequence[TokenEvent]) -> TokenEvent:
    """One event that says what these, of one request in order, say together."""
    last = events[-1]
    if len(events) == 1:
        return last
    return msgspec.structs.replace(
        last,
        tokens=tuple(token for event in events for token in event.tokens),
        logprobs=tuple(entry for event in events for entry in event.logprobs),
        prompt_logprobs=tuple(entry for event in events for entry in event.prompt_logprobs),
    )
