"""The requests' way to the engine process and back: through the gate, in flight, to whoever waits for their events.

API process, on its event loop. Knows messages; whether there is an engine, `server.engine.service` tells it.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from server.engine.admission import Admission, Visitor
from server.engine.errors import CondemnedRequest, ServiceError
from server.engine.gate import Gate
from server.engine.inflight import InFlight
from server.engine.request import Request, TokenEvent
from server.engine.submission import Submission
from server.engine.wire import Begun, Cancel, Step, Submit

CONDEMNED = (
    "The engine broke down twice while it worked on exactly this request, the second time on nothing else; it is not "
    "tried again"
)


class Dispatch:
    """send takes a message to the engine that is there now. clock: seconds, CLOCK_MONOTONIC, as deadlines are."""

    def __init__(
        self,
        admission: Admission,
        *,
        send: Callable[[Submit | Cancel], None],
        on_discard: Callable[[int], None],
        clock: Callable[[], float],
    ) -> None:
        self.admission = admission
        self._in_flight = InFlight(admission, on_cancel=self._give_up, on_discard=on_discard)
        self._gate = Gate(clock)
        self._send = send
        self._clock = clock
        self._has_engine = False

    def __len__(self) -> int:
        """Requests that were submitted and have not ended."""
        return len(self._in_flight)

    @property
    def idle(self) -> asyncio.Event:
        """Set while there are none."""
        return self._in_flight.idle

    @property
    def occupied(self) -> bool:
        """Whether the engine has anything to do."""
        return self._gate.occupied

    @property
    def num_outside(self) -> int:
        """How many wait before the engine: suspects for their turn, and others for its end."""
        return self._gate.num_outside

    def submit(self, requests: Sequence[Request], visitor: Visitor) -> Submission:
        """They go to the engine at once, or when it is their turn. Raises what refuses them."""
        if any(self._gate.suspects.condemns(request) for request in requests):
            raise CondemnedRequest(CONDEMNED)
        self.admission.check(visitor, requests)
        submission = self._in_flight.add(requests, visitor)
        now = self._clock()
        self._gate.add(msgspec.structs.replace(request, waiting_since=now) for request in requests)
        self._release()
        for request in requests:
            if request.deadline is not None and self._gate.is_outside(request.id):
                asyncio.get_running_loop().call_later(request.deadline - now, self._expire, request.id, now)
        return submission

    def resume(self) -> None:
        """There is an engine (again)."""
        self._has_engine = True
        self._release()

    def _release(self) -> None:
        """Send whoever may go in now."""
        if self._has_engine and (going := self._gate.release()):
            self._send(Submit(tuple(going)))

    def begun(self, message: Begun) -> None:
        """The engine is about to run these for the first time."""
        self._gate.begin(message.request_ids)
        self._in_flight.begin(message.request_ids)

    def take(self, step: Step) -> None:
        """What a step brought."""
        for event in step.events:
            if event.finish is not None:
                self._gate.end(event.request_id, answered=event.finish != "cancelled" and not event.ended_by)
            self._in_flight.take(event)
        self._release()

    def lose(self, error: ServiceError) -> int:
        """The engine is gone: tell everyone who was inside; how many that were. Whoever waits outside waits on."""
        self._has_engine = False
        loss = self._gate.lose()
        self._end(self._in_flight.fail(CondemnedRequest(CONDEMNED), loss.condemned))
        self._end(self._in_flight.fail(error, loss.inside))
        return len(loss.inside)

    def fail_all(self, error: ServiceError) -> int:
        """End everything with this error; how many there were."""
        failed = self._in_flight.fail(error)
        self._end(failed)
        return len(failed)

    def _give_up(self, request_ids: Sequence[str], *, answered: bool) -> None:
        """Whoever waited for them has all they need, or went away."""
        self._end(request_ids, answered=answered)
        self._release()

    def _end(self, request_ids: Sequence[str], *, answered: bool = False) -> None:
        if inside := self._gate.give_up(request_ids, answered=answered):
            self._send(Cancel(tuple(inside)))

    def _expire(self, request_id: str, since: float) -> None:
        """Its deadline passed, perhaps before it was let in."""
        if self._gate.is_outside(request_id):
            self._gate.give_up([request_id], answered=False)
            waited = self._clock() - since
            self._in_flight.take(TokenEvent(request_id, finish="length", ended_by="deadline", queue_seconds=waited))
