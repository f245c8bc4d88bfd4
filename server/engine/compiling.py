"""Generations that can't join the line yet, because their constraint is still being compiled.

Knows futures; knows neither grammars' insides nor the schedule.
"""

from collections.abc import Callable
from concurrent.futures import Future

from llguidance import LLMatcher

from server.engine.constraint import Grammars
from server.engine.generation import Generation
from server.engine.request import Constraint


class Compiling:
    """Between a request's arrival and its place in the line."""

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._pending: dict[str, tuple[Generation, Future[LLMatcher]]] = {}  # by request id, in order of arrival
        self._wake: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def any_ready(self) -> bool:
        """Whether `take_ready` would give something."""
        return any(future.done() for _, future in self._pending.values())

    @property
    def next_deadline(self) -> float | None:
        """When the first of them has no time left; None where none has a deadline."""
        deadlines = [each.request.deadline for each, _ in self._pending.values() if each.request.deadline is not None]
        return min(deadlines, default=None)

    def on_ready(self, wake: Callable[[], None]) -> None:
        """`wake` is called, on another thread, whenever one gets ready."""
        self._wake = wake

    def add(self, generation: Generation, constraint: Constraint) -> None:
        """Begin to compile its constraint."""
        future = self._grammars.compile(constraint)
        self._pending[generation.request.id] = generation, future
        future.add_done_callback(lambda _: self._wake())

    def remove(self, generation: Generation) -> bool:
        """It was cancelled; False when it isn't here. What is being compiled is finished all the same."""
        return self._pending.pop(generation.request.id, None) is not None

    def take_ready(self) -> list[tuple[Generation, Exception | None]]:
        """Those that can join the line, their masks attached, and those that can't, with the reason."""
        ready = [pair for pair in self._pending.values() if pair[1].done()]
        return [(generation, self._attach(generation, future)) for generation, future in ready]

    def _attach(self, generation: Generation, future: "Future[LLMatcher]") -> Exception | None:
        del self._pending[generation.request.id]
        try:
            matcher = future.result()
            generation.constrain(self._grammars.start(matcher, generation.request.params, generation.output))
        except Exception as error:
            return error
        return None
