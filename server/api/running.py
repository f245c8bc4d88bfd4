"""Requests that run, by the id that their answers carry, so that anyone who has the id can cancel them.

Knows submissions; knows no HTTP. Ids are the clients' own where they gave one, so several requests may share one, and
two owners of keys may use the same; each reaches only their own.
"""

from collections.abc import Sequence
from typing import Protocol

from server.engine.errors import RequestCancelled
from server.engine.request import TokenEvent


class Submission(Protocol):
    """The requests of one HTTP request inside the engine."""

    @property
    def admitted(self) -> bool:
        """The engine has taken it off the waiting line."""
        ...

    async def batch(self) -> Sequence[TokenEvent]:
        """Waits for events, then all that are there, at most one per request. Empty once every request has finished.

        Giving up the wait loses nothing. Raises ServiceError when the engine dies.
        """
        ...

    def cancel(self, request_id: str | None = None) -> None:
        """Stop one request, or (None) all of them. Finished ones are left alone."""
        ...


class Ticket:
    """One request, from the moment its id is known until its end."""

    def __init__(self, owner: str, request_id: str) -> None:
        self.owner = owner
        self.request_id = request_id
        self._cancelled = False
        self._submission: Submission | None = None

    def hold(self, submission: Submission) -> None:
        """The engine works on it now. A cancel that came before counts."""
        self._submission = submission
        if self._cancelled:
            submission.cancel()

    def cancel(self) -> None:
        """End it; whoever waits for its events gets none any more."""
        self._cancelled = True
        if self._submission is not None:
            self._submission.cancel()

    def check(self) -> None:
        """Raises RequestCancelled if that is how it ended."""
        if self._cancelled:
            raise RequestCancelled(f"Cancelled: DELETE /v1/requests/{self.request_id}")


class Running:
    """Every ticket that was entered and has not left."""

    def __init__(self) -> None:
        self._tickets: dict[tuple[str, str], list[Ticket]] = {}

    def enter(self, owner: str, request_id: str) -> Ticket:
        """A request begins. Whoever enters it calls `leave` once, however it ends."""
        ticket = Ticket(owner, request_id)
        self._tickets.setdefault((owner, request_id), []).append(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """It has ended."""
        key = ticket.owner, ticket.request_id
        self._tickets[key].remove(ticket)
        if not self._tickets[key]:
            del self._tickets[key]

    def cancel(self, owner: str, request_id: str) -> int:
        """Cancel every request of this owner and id; how many there were."""
        tickets = self._tickets.get((owner, request_id), ())
        for ticket in tickets:
            ticket.cancel()
        return len(tickets)

    def __len__(self) -> int:
        return sum(map(len, self._tickets.values()))
