"""How answers are put into JSON: what chat and completions say alike, and the faces of what endpoints say differently.

Knows shapes only; nothing here waits or counts.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from server.api.answer import Answer
from server.api.choices import Delta, Ending, ScoredToken
from server.api.errors import describe
from server.api.prompt_scores import echoed_tokens, listed_logprobs
from server.api.receipts import identity, make_receipt
from server.api.serving import Serving
from server.api.sse import DONE, event
from server.api.tools.calls import Call, CallDelta, joined
from server.engine.errors import RequestError, ServiceError
from server.metrics import Endpoint

Fields = dict[str, object]


class Writing(Protocol):
    """Writes one answer, whole or as a stream."""

    def whole(self, texts: Sequence[str], scored: Sequence[Sequence[ScoredToken]]) -> Fields:
        """The answer in one piece, by choice."""
        ...

    def block(self, deltas: Sequence[tuple[int, Delta]]) -> bytes:
        """What one step brought, as events. No deltas: only the prompt got further."""
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

    def whole(
        self,
        index: int,
        text: str,
        scored: Sequence[ScoredToken] | None,
        finish: Ending | None,
        calls: Sequence[Call] = (),
    ) -> Fields:
        """A choice of an answer in one piece."""
        ...

    def opening(self, index: int, echo: str, scored: Sequence[ScoredToken] | None) -> Fields | None:
        """The choice of a stream's first chunk, before any text; None for no such chunk. scored: the echo's tokens."""
        ...

    def piece(self, index: int, text: str, scored: Sequence[ScoredToken] | None, finish: Ending | None) -> Fields:
        """The choice of a further chunk. The one with finish has no text."""
        ...

    def calls(self, index: int, calls: Sequence[CallDelta], scored: Sequence[ScoredToken] | None) -> Fields:
        """The choice of a chunk with parts of calls."""
        ...


def face_of(wording: Wording, serving: Serving) -> Face:
    """The face of chat or completions."""
    return Face(wording.endpoint, wording.id_prefix, lambda answer: Writer(answer, wording, serving))


class Writer:
    """Writes one answer, whole or in blocks of events. Every part of it carries the same id, time and model."""

    def __init__(self, answer: Answer, wording: Wording, serving: Serving) -> None:
        self._answer = answer
        self._wording = wording
        self._serving = serving
        self._job = answer.job
        self._head = {"id": answer.job.id, "created": int(time.time()), "model": serving.model.id}
        self._opened = False
        # for the receipt of a stream
        self._texts = [""] * len(answer.choices)
        self._scored = [list[ScoredToken]() for _ in answer.choices]

    def whole(self, texts: Sequence[str], scored: Sequence[Sequence[ScoredToken]]) -> Fields:
        """The answer in one piece."""
        choices = self.choices(texts, scored)
        said = {"object": self._wording.whole_object, "choices": choices, "usage": self._answer.usage()}
        return self._head | said | {"kvell": self._kvell(choices)}

    def choices(self, texts: Sequence[str], scored: Sequence[Sequence[ScoredToken]]) -> list[Fields]:
        """The choices that are shown, whole."""
        found = []
        for index, number in enumerate(self._answer.shown()):
            finish, calls = self._answer.choices[number].finish, joined(self._answer.choices[number].calls)
            said = self._logprobs(scored[number], number)
            said = said if said is None else [*self._echoed(number), *said]
            choice = self._wording.whole(index, self._echo(number) + texts[number], said, finish, calls)
            found.append(choice | self._prompt_facts(number) | self._ids(scored[number]))
        return found

    def block(self, deltas: Sequence[tuple[int, Delta]]) -> bytes:
        """What one step brought, as events: the openings of all choices before the first text of any."""
        told = [self._chunk([], {"prompt_progress": each}) for each in self._answer.take_progress()]
        if not deltas:
            return b"".join(told)
        events = [] if self._opened else self._openings()
        self._opened = True
        for index, delta in deltas:
            if self._job.shown.receipt:
                self._texts[index] += delta.text
                self._scored[index] += delta.scored
            if delta.text or (delta.scored and not delta.calls):
                piece = self._wording.piece(index, delta.text, self._logprobs(delta.scored, index), None)
                events.append(piece | self._ids(delta.scored))
            for number, call in enumerate(delta.calls):
                scored = delta.scored if number == 0 and not delta.text else []
                part = self._wording.calls(index, [call], self._logprobs(scored, index))
                events.append(part | self._ids(scored))
            if delta.finish:
                events.append(self._wording.piece(index, "", None, delta.finish))
        chunks = [self._chunk([choice]) for choice in events]
        if self._answer.complete and not self._job.include_usage:
            chunks[-1] = self._chunk([events[-1]], {"kvell": self._kvell()})
        return b"".join(told + chunks)

    def ending(self) -> bytes:
        """After the last block: the usage chunk if it was asked for, and the end mark."""
        if not self._job.include_usage:
            return DONE
        return self._chunk([], {"usage": self._answer.usage(), "kvell": self._kvell()}) + DONE

    def failure(self, error: RequestError | ServiceError) -> bytes:
        """The error as an event: the status can't be changed any more."""
        return event(describe(error)) + DONE

    def _openings(self) -> list[Fields]:
        events = []
        for index in range(len(self._answer.choices)):
            echoed = self._echoed(index) if self._job.shown.echoed else None
            opening = self._wording.opening(index, self._echo(index), echoed)
            facts = self._prompt_facts(index)
            if facts and opening is None:
                opening = self._wording.piece(index, "", None, None)
            if opening is not None:
                events.append(opening | facts)
        return events

    def _chunk(self, choices: Sequence[Fields], more: Fields | None = None) -> bytes:
        body = self._head | {"object": self._wording.chunk_object, "choices": choices}
        usage: Fields = {"usage": None} if self._job.include_usage else {}
        if self._job.continuous_usage:
            usage = {"usage": self._answer.usage()}
        return event(body | usage | (more or {}))

    def _kvell(self, choices: Sequence[Fields] | None = None) -> Fields:
        """How the answer came about. choices: as they are whole; None: of a stream."""
        said = self._answer.report()
        if self._job.shown.receipt:
            whole = self.choices(self._texts, self._scored) if choices is None else choices
            said["receipt"] = make_receipt(self._answer, identity(self._serving), whole)
        return said

    def _echo(self, number: int) -> str:
        return self._job.echoes[number // self._job.choices_per_prompt]

    def _echoed(self, number: int) -> list[ScoredToken]:
        """The prompt's tokens, where they come with logprobs."""
        best = self._job.shown.logprobs
        if not self._job.shown.echoed or best is None:
            return []
        ids, entries = self._answer.prompt(number)
        return echoed_tokens(self._serving.model.tokenizer, ids, self._echo(number), entries, best=best)

    def _prompt_facts(self, number: int) -> Fields:
        """What was asked for about the prompt."""
        (ids, entries), shown, found = self._answer.prompt(number), self._job.shown, Fields()
        if shown.token_ids:
            found["prompt_token_ids"] = ids
        if shown.prompt_logprobs is not None:
            tokenizer = self._serving.model.tokenizer
            found["prompt_logprobs"] = listed_logprobs(tokenizer, ids, entries, best=shown.prompt_logprobs)
        return found

    def _ids(self, scored: Sequence[ScoredToken]) -> Fields:
        return {"token_ids": [each.token for each in scored]} if self._job.shown.token_ids else {}

    def _logprobs(self, scored: Sequence[ScoredToken], number: int) -> Sequence[ScoredToken] | None:
        """What is to be said of the answer's tokens, which stand after the echo."""
        if self._job.shown.logprobs is None:
            return None
        shift = len(self._echo(number))
        return [replace(each, offset=each.offset + shift) for each in scored] if shift else scored
