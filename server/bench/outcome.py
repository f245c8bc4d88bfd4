"""One request as its client saw it, from the moment when it was due to its end. Knows OpenAI's events; no sockets."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import msgspec

# refused: 429 or 503; reset: no connection, or one that ended early; cut: a stream without its end, or with an error
Kind = Literal["ok", "429", "503", "other status", "timeout", "reset", "cut stream"]
KINDS: tuple[Kind, ...] = ("ok", "429", "503", "other status", "timeout", "reset", "cut stream")


@dataclass(slots=True)
class Outcome:
    """Times are readings of one clock, in seconds.

    due            when it was to be sent, which in open-loop load may be before it was: a slow server must not hide
                   behind clients that wait for it
    head_sent      when the last byte of its head was handed to the system
    answered       when the head of the answer was there
    pieces         when text arrived, piece by piece, as a rule one token each
    returned       it was sent again, at the time that a refusal told
    retry_after_s  what the refusal told
    """

    number: int
    due: float
    returned: bool = False
    sent: float = 0.0
    head_sent: float = 0.0
    answered: float = 0.0
    ended: float = 0.0
    pieces: list[float] = field(default_factory=list)
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    kind: Kind = "ok"
    detail: str = ""
    retry_after_s: float | None = None

    @property
    def gaps(self) -> list[float]:
        """Seconds between one piece and the next."""
        return [later - earlier for earlier, later in pairwise(self.pieces)]

    @property
    def first_s(self) -> float | None:
        """Seconds from when it was due to its first piece."""
        return self.pieces[0] - self.due if self.pieces else None

    @property
    def took_s(self) -> float:
        """Seconds from when it was due to its end."""
        return self.ended - self.due

    def fail(self, kind: Kind, detail: str) -> None:
        """The first reason counts."""
        if self.kind == "ok":
            self.kind, self.detail = kind, detail

    def note(self, event: bytes, now: float) -> None:
        """Take in the data of one event of the stream."""
        try:
            chunk = _decoder.decode(event)
        except msgspec.MsgspecError as error:
            return self.fail("cut stream", f"an event that can't be read: {error}")
        if chunk.error is not None:
            said = chunk.error.get("message", chunk.error) if isinstance(chunk.error, dict) else chunk.error
            self.fail("cut stream", f"error event: {said}")
        if any(choice.has_text for choice in chunk.choices or ()):
            self.pieces.append(now)
        if chunk.usage is not None:
            details = chunk.usage.prompt_tokens_details
            self.input_tokens, self.output_tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
            self.cached_tokens = (details and details.cached_tokens) or 0


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None

    @property
    def has_text(self) -> bool:
        return bool(self.text or (self.delta and (self.delta.content or self.delta.reasoning_content)))


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Cached | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: object = None


_decoder = msgspec.json.Decoder(_Chunk)
