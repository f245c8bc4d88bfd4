"""Which sequences are in flight and whose they are; how fast they drain, and so how long a refused client should wait.

API process. Knows no engine process: events are brought here, cancels are handed to whoever made it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from math import ceil

from server.engine.errors import InvalidValue, ServiceError, TooBusy
from server.engine.request import Request, TokenEvent
from server.engine.submission import Submission

WINDOW_SECONDS = 30.0
LONGEST_WAIT_SECONDS = 600


class InFlight:
    """Every submitted sequence until it finishes, fails or is cancelled.

    running_limit and waiting_limit: how many the engine runs at once, and how many more may wait.
    on_cancel hears which ids their consumer gave up; on_discard how many generated tokens nobody gets.
    """

    def __init__(
        self,
        *,
        running_limit: int,
        waiting_limit: int,
        on_cancel: Callable[[Sequence[str]], None],
        on_discard: Callable[[int], None],
        clock: Callable[[], float],
    ) -> None:
        self.idle = asyncio.Event()  # set while nothing is in flight
        self.idle.set()
        self._submissions: dict[str, Submission] = {}  # by request id
        self._running_limit = running_limit
        self._capacity = running_limit + waiting_limit
        self._on_cancel = on_cancel
        self._on_discard = on_discard
        self._clock = clock
        self._busy_since = clock()
        self._ends: deque[float] = deque()

    def __len__(self) -> int:
        return len(self._submissions)

    def check_room(self, count: int) -> None:
        """Raises TooBusy where `count` more are too many now, InvalidValue where they always would be."""
        if count > self._capacity:
            raise InvalidValue(f"{count} answers asked for at once; this server holds at most {self._capacity}")
        if len(self) + count > self._capacity:
            message = f"{len(self)} sequences run or wait; {count} more would pass the limit of {self._capacity}"
            raise TooBusy(message, retry_after=self._retry_after())

    def add(self, requests: Sequence[Request]) -> Submission:
        """These were sent to the engine."""
        assert not any(request.id in self._submissions for request in requests), "request ids must be unique"
        if not self._submissions:
            self._busy_since = self._clock()
        submission = Submission([request.id for request in requests], self._drop)
        self._submissions.update((request.id, submission) for request in requests)
        if self._submissions:
            self.idle.clear()
        return submission

    def take(self, event: TokenEvent) -> None:
        """The engine reports this."""
        submission = self._submissions.get(event.request_id)
        if submission is None:  # cancelled meanwhile
            self._on_discard(len(event.tokens))
            return
        submission.push(event)
        if event.finish is not None:
            self._forget([event.request_id])

    def fail_all(self, error: ServiceError) -> list[str]:
        """End everything with this error; the ids of what was still going on."""
        for submission in dict.fromkeys(self._submissions.values()):
            submission.fail(error)
        lost = list(self._submissions)
        self._forget(lost)
        return lost

    def _drop(self, request_ids: Sequence[str], unread_tokens: int) -> None:
        self._on_discard(unread_tokens)
        known = [each for each in request_ids if each in self._submissions]
        if known:
            self._forget(known)
            self._on_cancel(known)

    def _forget(self, request_ids: Sequence[str]) -> None:
        for each in request_ids:
            del self._submissions[each]
        now = self._clock()
        self._ends.extend(now for _ in request_ids)
        while self._ends and self._ends[0] < now - WINDOW_SECONDS:
            self._ends.popleft()
        if not self._submissions:
            self.idle.set()

    def _retry_after(self) -> int:
        """Seconds, at least 1: the sequences that wait, divided by how many ended per second lately.

        Lately is the last 30 s, or less when the server became busy later. Where nothing ended yet, one is assumed to.
        """
        now = self._clock()
        since = max(self._busy_since, now - WINDOW_SECONDS)
        ends = sum(1 for end in self._ends if end >= since)
        waiting = max(1, len(self) - self._running_limit)
        return min(LONGEST_WAIT_SECONDS, max(1, ceil(waiting * (now - since) / max(1, ends))))
