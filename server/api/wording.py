"""How answers are put into JSON: what chat and completions say alike, and the faces of what endpoints say differently.

Knows shapes only; nothing here waits or counts.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from server.api.answer import Answer
from server.api.choices import Delta, Ending, ScoredToken
from server.api.errors import describe
from server.api.sse import DONE, event
from server.engine.errors import RequestError, ServiceError
from server.metrics import Endpoint

Fields = dict[str, object]


class Writing(Protocol):
    """Writes one answer, whole or as a stream."""

    def whole(self, texts: Sequence[str], scored: Sequence[Sequence[ScoredToken]]) -> Fields:
        """The answer in one piece, by choice."""
        ...

    def block(self, deltas: Iterable[tuple[int, Delta]]) -> bytes:
        """What one step brought, as events."""
        ...

    def ending(self) -> bytes:
        """After the last block."""
        ...

    def failure(self, error: RequestError | ServiceError) -> bytes:
        """Instead of what would have come."""
        ...


@dataclass(frozen=True, slots=True)
class Face:
    """What `generate` has to know of an endpoint. id_prefix begins the ids of its answers."""

    endpoint: Endpoint
    id_prefix: str
    writer: Callable[[Answer], Writing]


class Wording(Protocol):
    """How chat or completions word their answers. scored is None where no logprobs were asked for."""

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def id_prefix(self) -> str: ...

    @property
    def whole_object(self) -> str: ...

    @property
    def chunk_object(self) -> str: ...

    def whole(self, index: int, text: str, scored: Sequence[ScoredToken] | None, finish: Ending | None) -> Fields:
        """A choice of an answer in one piece."""
        ...

    def opening(self, index: int, echo: str) -> Fields | None:
        """The choice of a stream's first chunk, before any text; None for no such chunk."""
        ...

    def piece(self, index: int, text: str, scored: Sequence[ScoredToken] | None, finish: Ending | None) -> Fields:
        """The choice of a further chunk. The one with finish has no text."""
        ...


def face_of(wording: Wording, model_id: str) -> Face:
    """The face of chat or completions."""
    return Face(wording.endpoint, wording.id_prefix, lambda answer: Writer(answer, wording, model_id))


class Writer:
    """Writes one answer, whole or in blocks of events. Every part of it carries the same id, time and model."""

    def __init__(self, answer: Answer, wording: Wording, model_id: str) -> None:
        self._answer = answer
        self._wording = wording
        self._job = answer.job
        self._head = {"id": answer.job.id, "created": int(time.time()), "model": model_id}
        self._opened = False

    def whole(self, texts: Sequence[str], scored: Sequence[Sequence[ScoredToken]]) -> Fields:
        """The answer in one piece."""
        choices = [
            self._wording.whole(index, self._echo(index) + texts[index], self._scored(scored[index]), choice.finish)
            for index, choice in enumerate(self._answer.choices)
        ]
        return self._head | {"object": self._wording.whole_object, "choices": choices, "usage": self._answer.usage()}

    def block(self, deltas: Iterable[tuple[int, Delta]]) -> bytes:
        """What one step brought, as events: the openings of all choices before the first text of any."""
        events = [] if self._opened else self._openings()
        self._opened = True
        for index, delta in deltas:
            if delta.text or delta.scored:
                events.append(self._wording.piece(index, delta.text, self._scored(delta.scored), None))
            if delta.finish:
                events.append(self._wording.piece(index, "", None, delta.finish))
        return b"".join(self._chunk([choice]) for choice in events)

    def ending(self) -> bytes:
        """After the last block: the usage chunk if it was asked for, and the end mark."""
        if not self._job.include_usage:
            return DONE
        return self._chunk([], usage=self._answer.usage()) + DONE

    def failure(self, error: RequestError | ServiceError) -> bytes:
        """The error as an event: the status can't be changed any more."""
        return event(describe(error)) + DONE

    def _openings(self) -> list[Fields]:
        choices = (self._wording.opening(index, self._echo(index)) for index in range(len(self._answer.choices)))
        return [choice for choice in choices if choice is not None]

    def _chunk(self, choices: Sequence[Fields], usage: Fields | None = None) -> bytes:
        body = self._head | {"object": self._wording.chunk_object, "choices": choices}
        return event(body | {"usage": usage} if self._job.include_usage else body)

    def _echo(self, index: int) -> str:
        return self._job.echoes[index // self._job.choices_per_prompt]

    def _scored(self, scored: Sequence[ScoredToken]) -> Sequence[ScoredToken] | None:
        return scored if self._job.wants_logprobs else None
