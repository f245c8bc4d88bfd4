"""One answer, growing: token events become text, and text, tokens and logprobs all end at the same place (law 4).

Knows tokens, text and stop strings; doesn't know how an endpoint words an answer, nor the engine.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from server.api.tools.calls import CallDelta, CallParser
from server.engine.detokenizer import Detokenizer, Pieces
from server.engine.errors import GenerationFailed, InvalidValue
from server.engine.request import Request, TokenEvent, TokenLogprob
from server.engine.stops import StopMatcher

Ending = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token of the text, its log-probability and the best alternatives, if any. offset: where its text begins."""

    token: int
    entry: TokenLogprob | None
    offset: int

    @property
    def logprob(self) -> TokenLogprob:
        """For callers that know they asked for it."""
        assert self.entry is not None, f"token {self.token} has no log-probability"
        return self.entry


@dataclass(slots=True)
class Delta:
    """What an event adds to an answer. finish is set on the last one. calls come after text."""

    text: str = ""
    scored: list[ScoredToken] = field(default_factory=list)
    finish: Ending | None = None
    calls: list[CallDelta] = field(default_factory=list)


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

    def __init__(
        self,
        request: Request,
        tokenizer: Pieces,
        stops: StopMatcher,
        parser: CallParser | None = None,
        *,
        by_token: bool = True,
    ) -> None:
        """parser: takes calls out of the text. by_token: deltas say which tokens they are made of."""
        self.calls: list[CallDelta] = []  # of the whole answer
        self._parser = parser
        self.num_tokens = 0
        self.logprob_sum = 0.0  # of all these tokens, as far as they have log-probabilities
        self.finish: Ending | None = None
        self.last_event: TokenEvent | None = None  # its totals are the latest
        self._by_token = by_token
        self._constraint = request.constraint
        self._min_tokens = request.params.min_tokens
        self._detokenizer = Detokenizer(tokenizer, request.prompt)
        self._stops = stops
        self._waiting: deque[_Waiting] = deque()
        self._written = 0  # characters that the detokenizer gave
        self._emitted = 0  # of these, the ones that are out

    @property
    def ended_by(self) -> str:
        """How it ended: deadline, length, stop_string or stop_token; "" while it has not."""
        if self.finish is None:
            return ""
        if self.finish == "length":
            return (self.last_event and self.last_event.ended_by) or "length"
        return "stop_token" if self.stop_string is None else "stop_string"

    @property
    def mean_logprob(self) -> float:
        """Per token; nothing is worse than no token."""
        return self.logprob_sum / self.num_tokens if self.num_tokens else -math.inf

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
        delta = self._push(event)
        if self._parser is not None:
            self._parse(self._parser, delta)
        return delta

    def _parse(self, parser: CallParser, delta: Delta) -> None:
        """Turn its text into content and calls."""
        parsed = [parser.push(delta.text)] + ([parser.flush()] if delta.finish else [])
        delta.text = "".join(each.text for each in parsed)
        delta.calls = [call for each in parsed for call in each.calls]
        self.calls += delta.calls
        if delta.finish == "stop" and self.calls:
            delta.finish = self.finish = "tool_calls"

    def _push(self, event: TokenEvent) -> Delta:
        """The same in plain text."""
        assert self.finish is None, f"{event.request_id} went on after it had ended"
        self.last_event = event
        delta = Delta()
        for index, token in enumerate(event.tokens):
            self.num_tokens += 1
            logprob = event.logprobs[index] if event.logprobs else None
            self.logprob_sum += logprob.logprob if logprob is not None else 0.0
            if event.finish == "stop" and index == len(event.tokens) - 1:
                break  # the token that ends the answer is counted, and not shown
            if self._take(token, logprob, delta):
                return self._end(delta, "stop")
        if event.finish in ("stop", "length"):
            return self._flush(delta, "stop" if event.finish == "stop" else "length")
        return self._release(delta)

    def _take(self, token: int, logprob: TokenLogprob | None, delta: Delta) -> bool:
        """Add one token; True when its text completed a stop string. Before min_tokens nothing is looked for."""
        text = self._detokenizer.push((token,))
        if self._by_token:
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
