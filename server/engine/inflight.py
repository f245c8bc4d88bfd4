"""Which sequences are in flight, and who waits for their events.

API process. Knows no engine process: events are brought here, cancels are handed to whoever made it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from server.engine.admission import ANYBODY, Admission, Visitor
from server.engine.errors import RequestError, ServiceError
from server.engine.request import Request, TokenEvent
from server.engine.submission import Submission


class OnCancel(Protocol):
    """Hears which ids their consumer wants no more of; answered: because it has all it wants of them."""

    def __call__(self, request_ids: Sequence[str], *, answered: bool) -> None: ...


class InFlight:
    """Every submitted sequence until it finishes, fails or is cancelled. on_discard: generated tokens nobody gets."""

    def __init__(
        self,
        admission: Admission,
        *,
        on_cancel: OnCancel,
        on_discard: Callable[[int], None],
    ) -> None:
        self.admission = admission
        self.idle = asyncio.Event()  # set while nothing is in flight
        self.idle.set()
        self._submissions: dict[str, Submission] = {}  # by request id
        self._on_cancel = on_cancel
        self._on_discard = on_discard

    def __len__(self) -> int:
        return len(self._submissions)

    def add(self, requests: Sequence[Request], visitor: Visitor = ANYBODY) -> Submission:
        """These were sent to the engine."""
        assert not any(request.id in self._submissions for request in requests), "request ids must be unique"
        submission = Submission([request.id for request in requests], self._drop)
        self._submissions.update((request.id, submission) for request in requests)
        self.admission.enter(visitor, requests)
        if self._submissions:
            self.idle.clear()
        return submission

    def begin(self, request_ids: Iterable[str]) -> None:
        """The engine has let these in."""
        for each in request_ids:
            if each in self._submissions:
                self.admission.let_in(each)
                self._submissions[each].admitted = True

    def take(self, event: TokenEvent) -> None:
        """The engine reports this."""
        submission = self._submissions.get(event.request_id)
        if submission is None:  # cancelled meanwhile
            self._on_discard(len(event.tokens))
            return
        self.admission.let_in(event.request_id)
        submission.push(event)
        if event.finish is not None:
            self._forget([event.request_id])

    def fail(self, error: RequestError | ServiceError, request_ids: Iterable[str] | None = None) -> list[str]:
        """End these, or (None) everything, with this error, and what was submitted with them; ids of all that ended."""
        named = list(self._submissions) if request_ids is None else request_ids
        failed = dict.fromkeys(self._submissions[each] for each in named if each in self._submissions)
        for submission in failed:
            submission.fail(error)
        lost = [each for each, submission in self._submissions.items() if submission in failed]
        self._forget(lost)
        return lost

    def _drop(self, request_ids: Sequence[str], unread_tokens: int, *, answered: bool) -> None:
        self._on_discard(unread_tokens)
        known = [each for each in request_ids if each in self._submissions]
        if known:
            self._forget(known)
            self._on_cancel(known, answered=answered)

    def _forget(self, request_ids: Sequence[str]) -> None:
        for each in request_ids:
            del self._submissions[each]
            self.admission.end(each)
        if not self._submissions:
            self.idle.set()
