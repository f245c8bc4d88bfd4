"""How much may wait, in all and of each owner; what is too much now is refused with a time to come back.

API process. Knows no engine and no HTTP: it is told what enters, what the engine lets in, and what ends.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from server.engine.errors import InvalidValue, TooBusy, TooManyRequests
from server.engine.request import Request
from server.engine.returns import Returns
from server.engine.waits import Waits

WINDOW_SECONDS = 30.0
FEWEST_PLACES = 2.0  # a line no longer than that is never too long
RETURNING = 0.75  # share of a standing line's speed that is promised to those who come back: the rest absorbs chance


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: the key's owner with limits of their own, None where there are none; and how to know them again.

    mark is the same when the same request comes back, as far as one can tell from its head.
    """

    owner: str = ""
    max_waiting_requests: int | None = None
    max_waiting_tokens: int | None = None
    weight: int = 1
    mark: str = ""


ANYBODY = Visitor()


def cost_of(request: Request) -> int:
    """Tokens that a request may take: its prompt, of which the door can't know what is cached, and its output."""
    return len(request.prompt) + request.max_tokens


class Admission:
    """What is in flight, as far as the door needs to know it.

    running_limit: how many the engine runs at once; waiting_requests and waiting_tokens: how much more may wait.
    queue_s: how long one may have to wait once there has been a line for so long. So a burst that meets no line is let
    in whole.
    """

    def __init__(
        self,
        *,
        running_limit: int,
        waiting_requests: int,
        waiting_tokens: int | None,
        clock: Callable[[], float],
        queue_s: float | None = None,
    ) -> None:
        self._queue_s = queue_s
        self._capacity = running_limit + waiting_requests
        self._few = running_limit // 2
        self._waiting_tokens_limit = waiting_tokens
        self._clock = clock
        self._held: dict[str, tuple[str, int]] = {}  # owner and cost of all in flight, by request id
        self._waits = Waits(clock)  # those of them that the engine has not let in yet
        self._requests: Counter[str] = Counter()  # waiting, by owner
        self._tokens: Counter[str] = Counter()
        self._returns = Returns(clock)
        self._busy_since = clock()
        self._ends: deque[float] = deque()

    @property
    def waiting_tokens(self) -> int:
        """Tokens that the waiting requests may take."""
        return self._tokens.total()

    def knock(self, visitor: Visitor) -> None:
        """Raises where even the smallest request would be refused, so that its body need not be read."""
        self._check(visitor, 1, 0)

    def check(self, visitor: Visitor, requests: Sequence[Request]) -> None:
        """Raises TooBusy or TooManyRequests for what is too much now, InvalidValue for what always would be."""
        if len(requests) > self._capacity:
            raise InvalidValue(f"{len(requests)} answers asked for at once; this server holds at most {self._capacity}")
        self._check(visitor, len(requests), sum(map(cost_of, requests)))

    def _check(self, visitor: Visitor, count: int, tokens: int) -> None:
        own, most = self._requests[visitor.owner], visitor.max_waiting_requests
        if most is not None and own + count > most:
            self._refuse(TooManyRequests, visitor, f"{own} requests of this key wait; its limit is {most}")
        own, most = self._tokens[visitor.owner], visitor.max_waiting_tokens
        if most is not None and own and own + tokens > most:
            message = f"requests of this key that wait may take {own} tokens; its limit is {most}"
            self._refuse(TooManyRequests, visitor, message)
        self._check_wait(visitor)
        kept = min(self._returns.kept_from(visitor.mark), self._capacity // 2)
        if len(self._held) + count > self._capacity - kept:
            message = f"{len(self._held)} sequences run or wait; {count} more would pass the limit of {self._capacity}"
            self._refuse(TooBusy, visitor, message)
        waiting, limit = self.waiting_tokens, self._waiting_tokens_limit
        if limit is not None and waiting and waiting + tokens > limit:
            message = f"requests that wait may take {waiting} tokens; {tokens} more would pass the limit of {limit}"
            self._refuse(TooBusy, visitor, message)

    def _check_wait(self, visitor: Visitor) -> None:
        """By the place of a request's first sequence: one that asks for many answers would else never be let in.

        As long as half of the engine's places are free, nobody is refused: so few are no overload on any machine.

        Whoever was told to come now has twice the room: clients come on whole seconds, and so by chance together.
        """
        limit, speed = self._queue_s, self._waits.places_per_second
        if limit is None or speed is None or self._waits.standing_s <= limit or len(self._held) < self._few:
            return
        place, room = self._waits.place(visitor.owner), max(FEWEST_PLACES, limit * speed)
        if self._returns.expects(visitor.mark):
            room *= 2
        if place + min(self._returns.kept_from(visitor.mark), room / 2) > room:
            wait = f"a request would wait {place / speed:.1f} s for its turn"
            message = f"{wait}; --max-queue-seconds is {limit:g}; try again later"
            self._refuse(TooBusy, visitor, message, places_per_second=RETURNING * speed)

    def _refuse(
        self, kind: type[TooBusy], visitor: Visitor, message: str, *, places_per_second: float | None = None
    ) -> None:
        speed = places_per_second or self.ends_per_second()
        raise kind(message, retry_after=self._returns.hand_out(visitor.mark, speed))

    def enter(self, visitor: Visitor, requests: Sequence[Request]) -> None:
        """These were sent to the engine."""
        if not self._held:
            self._busy_since = self._clock()
        self._returns.take(visitor.mark)
        for request in requests:
            self._held[request.id] = visitor.owner, cost_of(request)
            self._waits.join(request.id, visitor.owner)
            self._requests[visitor.owner] += 1
            self._tokens[visitor.owner] += cost_of(request)

    def let_in(self, request_id: str) -> None:
        """The engine has begun with it. May be said more than once."""
        if request_id in self._waits:
            self._waits.let_in(request_id)
            self._uncount(request_id)

    def end(self, request_id: str) -> None:
        """It finished, failed or was cancelled."""
        if request_id in self._waits:
            self._waits.leave(request_id)
            self._uncount(request_id)
        del self._held[request_id]
        now = self._clock()
        self._ends.append(now)
        while self._ends[0] < now - WINDOW_SECONDS:
            self._ends.popleft()

    def _uncount(self, request_id: str) -> None:
        """It waits no longer."""
        owner, cost = self._held[request_id]
        self._requests[owner] -= 1
        self._tokens[owner] -= cost
        if not self._requests[owner]:
            del self._requests[owner], self._tokens[owner]

    def ends_per_second(self) -> float:
        """Over the last 30 s, or less when the server became busy later. Where nothing ended yet, one is assumed to."""
        now = self._clock()
        since = max(self._busy_since, now - WINDOW_SECONDS)
        ends = sum(1 for end in self._ends if end >= since)
        return max(1, ends) / max(now - since, 1.0)
