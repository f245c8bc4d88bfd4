"""One answer, growing: token events become text, and text, tokens and logprobs all end at the same place (law 4).

Knows tokens, text and stop strings; doesn't know how an endpoint words an answer, nor the engine.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from model.tokenizer.base import Tokenizer
from server.engine.detokenizer import Detokenizer
from server.engine.errors import GenerationFailed, InvalidValue
from server.engine.request import Request, TokenEvent, TokenLogprob
from server.engine.stops import StopMatcher

Ending = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token of the answer, its log-probability and the best alternatives. offset: where its text begins."""

    token: int
    logprob: TokenLogprob
    offset: int


@dataclass(slots=True)
class Delta:
    """What an event adds to an answer. finish is set on the last one."""

    text: str = ""
    scored: list[ScoredToken] = field(default_factory=list)
    finish: Ending | None = None


@dataclass(slots=True)
class _Waiting:
    """A scored token whose text is not out yet. end: length of the answer's text with it; None: in mid-character."""

    scored: ScoredToken
    end: int | None


class Choice:
    """Text and figures of one sequence.

    Worked example with the stop string "o w": the tokens "Hel", "lo", " wor" give the deltas "Hel", "l" and "" with
    finish "stop", as "o" is held back until it is clear whether " w" follows. The token "lo" is part of the answer, as
    it began before the end, and comes with the last delta. " wor" isn't, yet it counts: num_tokens is 3.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer, stops: StopMatcher) -> None:
        self.num_tokens = 0
        self.finish: Ending | None = None
        self.first_event: TokenEvent | None = None
        self._constraint = request.constraint
        self._min_tokens = request.params.min_tokens
        self._detokenizer = Detokenizer(tokenizer, request.prompt)
        self._stops = stops
        self._waiting: deque[_Waiting] = deque()
        self._written = 0  # characters that the detokenizer gave
        self._emitted = 0  # of these, the ones that are out

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        return self._stops.matched

    def push(self, event: TokenEvent) -> Delta:
        """What `event` adds. Raises GenerationFailed when the engine could not go on with this sequence.

        Or InvalidValue, when it could not begin: the constraint does not fit the model's vocabulary.
        """
        if event.refused and self._constraint is not None:
            raise InvalidValue(f"{self._constraint.param}: {event.error}", param=self._constraint.param)
        if event.finish in ("error", "cancelled"):
            raise GenerationFailed(event.error or "the engine failed on this request")
        assert self.finish is None, f"{event.request_id} went on after it had ended"
        self.first_event = self.first_event or event
        delta = Delta()
        for index, token in enumerate(event.tokens):
            self.num_tokens += 1
            if event.finish == "stop" and index == len(event.tokens) - 1:
                break  # the token that ends the answer is counted, and not shown
            logprob = event.logprobs[index] if event.logprobs else None
            if self._take(token, logprob, delta):
                return self._end(delta, "stop")
        if event.finish in ("stop", "length"):
            return self._flush(delta, "stop" if event.finish == "stop" else "length")
        return self._release(delta)

    def _take(self, token: int, logprob: TokenLogprob | None, delta: Delta) -> bool:
        """Add one token; True when its text completed a stop string. Before min_tokens nothing is looked for."""
        text = self._detokenizer.push((token,))
        if logprob is not None:
            self._waiting.append(_Waiting(ScoredToken(token, logprob, self._written), None))
        emitted, stopped = (text, False) if self.num_tokens < self._min_tokens else self._stops.push(text)
        self._write(text, emitted, delta)
        return stopped

    def _write(self, text: str, emitted: str, delta: Delta) -> None:
        """`text` is new, `emitted` (of it, and of what was held back) comes out."""
        if text:
            self._written += len(text)
            for waiting in reversed(self._waiting):
                if waiting.end is not None:
                    break
                waiting.end = self._written
        delta.text += emitted
        self._emitted += len(emitted)

    def _flush(self, delta: Delta, finish: Ending) -> Delta:
        """The engine ended the answer: whatever is held back comes out, unless it completes a stop string now."""
        text = self._detokenizer.flush()
        emitted, stopped = self._stops.push(text)
        self._write(text, emitted, delta)
        if stopped:
            return self._end(delta, "stop")
        self._write("", self._stops.flush(), delta)
        delta.scored.extend(waiting.scored for waiting in self._waiting)
        self._waiting.clear()
        return self._end(delta, finish)

    def _end(self, delta: Delta, finish: Ending) -> Delta:
        """After a stop string, of the tokens held back those belong to the answer that began before its end."""
        while self._waiting and self._waiting[0].scored.offset < self._emitted:
            delta.scored.append(self._waiting.popleft().scored)
        self._waiting.clear()
        delta.finish = self.finish = finish
        return delta

    def _release(self, delta: Delta) -> Delta:
        """Let go of the scored tokens whose text is out."""
        while self._waiting and (end := self._waiting[0].end) is not None and end <= self._emitted:
            delta.scored.append(self._waiting.popleft().scored)
        return delta
