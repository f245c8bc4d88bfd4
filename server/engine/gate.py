"""Which requests go to the engine now, and which are held back because a suspect is tried alone.

API process. Knows no sockets and no clients: what it releases, others send.

Requests go in as they come, until a suspect is among them. From then on nobody is let in; when those inside have ended,
the suspects go in one at a time, each alone for its whole life. After TURN_SECONDS no further suspect begins: those
held back meanwhile go in, all together, and when they have ended it is the suspects' turn again. So nobody waits for
more than the answers before them and one turn, and no suspect ever takes anybody else down.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from server.engine.request import Request
from server.engine.suspects import Suspects

TURN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Loss:
    """Who is to hear that the engine is lost: those inside it, and all, held back or not, that are condemned for it."""

    inside: tuple[str, ...]
    condemned: tuple[str, ...]


class Gate:
    """Every request from its arrival until the engine says that it has ended. All ids are request ids."""

    def __init__(self, clock: Callable[[], float], suspects: Suspects | None = None) -> None:
        self._clock = clock
        self.suspects = suspects or Suspects()
        self._inside: dict[str, Request] = {}
        self._begun: set[str] = set()  # those inside that the engine computes
        self._held: dict[str, Request] = {}
        self._accused: dict[str, Request] = {}  # suspects whose turn has not come
        self._closed = False
        self._turn_began: float | None = None

    @property
    def occupied(self) -> bool:
        """Whether the engine has anything to do."""
        return bool(self._inside)

    @property
    def num_outside(self) -> int:
        """How many are held back."""
        return len(self._held) + len(self._accused)

    def is_outside(self, request_id: str) -> bool:
        """Whether it is held back."""
        return request_id in self._held or request_id in self._accused

    def add(self, requests: Iterable[Request]) -> None:
        """They want in; see `release`."""
        for request in requests:
            waiting = self._accused if self.suspects.suspects(request) else self._held
            waiting[request.id] = request

    def release(self) -> list[Request]:
        """Those that go in now, in order. Call it whenever something came or ended."""
        is_turn = self._turn_began is not None  # a suspect is inside, or was just now
        if self._closed and self._inside and (self._accused or is_turn):
            return []
        if self._closed and (not self._accused or self._turn_is_over()):
            self._closed = False
        going: list[Request] = []
        if not self._closed:
            going, self._held = list(self._held.values()), {}
            self._closed, self._turn_began = bool(self._accused), None
        if self._accused and not going and not self._inside:
            self._turn_began = self._clock() if self._turn_began is None else self._turn_began
            going = [self._accused.pop(next(iter(self._accused)))]
        self._inside.update((request.id, request) for request in going)
        return going

    def _turn_is_over(self) -> bool:
        return self._turn_began is not None and self._clock() - self._turn_began >= TURN_SECONDS

    def begin(self, request_ids: Iterable[str]) -> None:
        """The engine computes these from now on."""
        self._begun.update(each for each in request_ids if each in self._inside)

    def end(self, request_id: str, *, answered: bool) -> None:
        """The engine is done with it. answered: not because somebody gave it up."""
        request = self._inside.pop(request_id, None)
        self._begun.discard(request_id)
        if request is not None and answered:
            self.suspects.clear(request)

    def give_up(self, request_ids: Iterable[str], *, answered: bool) -> list[str]:
        """Nobody wants more of these; answered: because all is there. Ids of those that are inside until they `end`."""
        inside = []
        for each in request_ids:
            if each in self._inside:
                inside.append(each)
                if answered:
                    self.suspects.clear(self._inside[each])
            elif self._held.pop(each, None) is None:
                self._accused.pop(each, None)
        return inside

    def lose(self) -> Loss:
        """The engine is gone, and whatever it computed is suspect; what was alone and suspect already is condemned.

        What the engine had not begun is innocent, unless it has a constraint, which is compiled before it begins.
        """
        inside, self._inside = self._inside, {}
        running = [each for each in inside.values() if each.id in self._begun or each.constraint is not None]
        self._begun.clear()
        if len(inside) == len(running) == 1 and self.suspects.suspects(running[0]):
            self.suspects.condemn(running[0])
        else:
            self.suspects.suspect(running)
        outside = [*self._accused.values(), *self._held.values()]
        self._accused, self._held = {}, {}
        self._closed, self._turn_began = False, None
        condemned = self._condemned([*inside.values(), *outside])
        self.add(each for each in outside if each.id not in condemned)
        return Loss(tuple(inside), condemned)

    def _condemned(self, requests: Sequence[Request]) -> tuple[str, ...]:
        return tuple(each.id for each in requests if self.suspects.condemns(each))
