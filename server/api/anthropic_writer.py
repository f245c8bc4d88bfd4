"""An answer in the words of Anthropic's Messages API: one message object, or the events that build it up.

https://docs.anthropic.com/en/api/messages-streaming. Knows shapes only.
"""

from collections.abc import Iterable, Sequence

from server.api.answer import Answer
from server.api.choices import Delta, ScoredToken
from server.api.errors import anthropic_error
from server.api.sse import named_event
from server.api.wording import Fields
from server.engine.errors import RequestError, ServiceError


class MessagesWriter:
    """Writes the one choice of `answer`."""

    def __init__(self, answer: Answer, model_id: str) -> None:
        self._answer = answer
        self._model_id = model_id
        self._begun = self._opened = False

    def whole(self, texts: Sequence[str], scored: Sequence[Sequence[ScoredToken]]) -> Fields:
        """The message object of a complete answer."""
        return self._message([{"type": "text", "text": texts[0]}]) | self._stop() | {"usage": self._usage()}

    def block(self, deltas: Iterable[tuple[int, Delta]]) -> bytes:
        """What one step brought. The content block begins with the first text."""
        events = [] if self._begun else [self._beginning()]
        self._begun = True
        for _, delta in deltas:
            if delta.text:
                events += self._open_block()
                said = {"type": "text_delta", "text": delta.text}
                events.append(_event("content_block_delta", index=0, delta=said))
            if delta.finish:
                events += [*self._open_block(), _event("content_block_stop", index=0)]
        return b"".join(events)

    def ending(self) -> bytes:
        """Why it ended, and the figures."""
        return _event("message_delta", delta=self._stop(), usage=self._usage()) + _event("message_stop")

    def failure(self, error: RequestError | ServiceError) -> bytes:
        """The error as an event."""
        return named_event("error", anthropic_error(error.status, error.message))

    def _beginning(self) -> bytes:
        message = self._message([]) | {"stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=message | {"usage": self._usage() | {"output_tokens": 0}})

    def _open_block(self) -> list[bytes]:
        if self._opened:
            return []
        self._opened = True
        return [_event("content_block_start", index=0, content_block={"type": "text", "text": ""})]

    def _message(self, content: Sequence[Fields]) -> Fields:
        about = {"id": self._answer.job.id, "type": "message", "role": "assistant", "model": self._model_id}
        return about | {"content": content}

    def _stop(self) -> Fields:
        choice = self._answer.choices[0]
        reason = "max_tokens" if choice.finish == "length" else "stop_sequence" if choice.stop_string else "end_turn"
        return {"stop_reason": reason, "stop_sequence": choice.stop_string}

    def _usage(self) -> Fields:
        """Anthropic counts the tokens that came from the cache apart from the rest of the input."""
        usage = self._answer.usage()
        prompt, details = usage["prompt_tokens"], usage["prompt_tokens_details"]
        assert isinstance(prompt, int)
        assert isinstance(details, dict)
        cached = details["cached_tokens"]
        return {
            "input_tokens": prompt - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage["completion_tokens"],
        }


def _event(kind: str, **fields: object) -> bytes:
    return named_event(kind, {"type": kind} | fields)
