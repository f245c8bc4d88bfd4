"""Who is let in next: in fair shares of tokens between owners, by priority and arrival within one owner's requests.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): an owner's clock runs on by the tokens that their requests may
take, divided by their weight, and the owner whose clock is furthest behind is next. Who had nothing waiting does not
save up: their clock is set to the present one. So shares hold however many requests each owner sends.

A lower priority goes first, and each AGEING_SECONDS in the line count as one step of it, so nothing starves. Those that
were preempted go before everybody: they are older than all that wait.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from server.engine.generation import Generation

AGEING_SECONDS = 5.0


@dataclass(slots=True)
class _Owner:
    clock: float
    waiting: list[Generation] = field(default_factory=list)


def _rank(generation: Generation) -> tuple[float, int]:
    """Smaller goes first. That everyone ages at the same pace makes it a constant of each."""
    return generation.waiting_since + AGEING_SECONDS * generation.request.priority, generation.arrival


class Line:
    """The waiting generations. Knows no cache and no time but what they carry."""

    def __init__(self) -> None:
        self._returning: deque[Generation] = deque()
        self._owners: dict[str, _Owner] = {}
        self._now = 0.0  # the clock of the owner who was served last

    def __len__(self) -> int:
        return len(self._returning) + sum(len(owner.waiting) for owner in self._owners.values())

    def __iter__(self) -> Iterator[Generation]:
        """First those that return, then owner by owner."""
        yield from self._returning
        for owner in self._owners.values():
            yield from owner.waiting

    def add(self, generation: Generation) -> None:
        """A new request."""
        owner = self._owners.setdefault(generation.request.owner, _Owner(self._now))
        if not owner.waiting:
            owner.clock = max(owner.clock, self._now)
        insort(owner.waiting, generation, key=_rank)

    def put_back(self, generation: Generation) -> None:
        """It was preempted, and goes before everybody."""
        self._returning.appendleft(generation)

    def remove(self, generation: Generation) -> None:
        """It ended while it waited."""
        if generation in self._returning:
            self._returning.remove(generation)
        else:
            self._owners[generation.request.owner].waiting.remove(generation)

    def head(self) -> Generation | None:
        """Who is next; None when nobody waits."""
        if self._returning:
            return self._returning[0]
        owner = self._next_owner()
        return owner.waiting[0] if owner else None

    def take(self, generation: Generation, num_tokens: int) -> None:
        """The head is let in, and may take so many tokens: its prompt that is not cached, and its output."""
        if self._returning:
            self._returning.popleft()  # it was charged when it first came in
            return
        owner = self._owners[generation.request.owner]
        owner.waiting.pop(0)
        self._now = owner.clock
        owner.clock += num_tokens / generation.request.weight

    def refund(self, generation: Generation, num_tokens: int) -> None:
        """It ended and left so many of its tokens untaken."""
        owner = self._owners[generation.request.owner]
        owner.clock -= num_tokens / generation.request.weight

    def _next_owner(self) -> _Owner | None:
        waiting = [owner for owner in self._owners.values() if owner.waiting]
        return min(waiting, key=lambda owner: owner.clock, default=None)
