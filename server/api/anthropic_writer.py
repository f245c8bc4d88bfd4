"""An answer in the words of Anthropic's Messages API: one message object, or the events that build it up.

https://docs.anthropic.com/en/api/messages-streaming. Knows shapes only.
"""

import json
from collections.abc import Sequence

from server.api.answer import Answer
from server.api.choices import Delta, ScoredToken
from server.api.errors import anthropic_error
from server.api.sse import named_event
from server.api.tools.calls import CallDelta, joined
from server.api.wording import Fields
from server.engine.errors import RequestError, ServiceError

REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "stop": "end_turn"}


class MessagesWriter:
    """Writes the one choice of `answer`."""

    def __init__(self, answer: Answer, model_id: str) -> None:
        self._answer = answer
        self._model_id = model_id
        self._begun = False
        self._num_blocks = 0
        self._growing = ""  # the type of the last block, while more of it may come

    def whole(self, texts: Sequence[str], scored: Sequence[Sequence[ScoredToken]]) -> Fields:
        """The message object of a complete answer: its text, if it has any or nothing else, then its calls."""
        calls = joined(self._answer.choices[0].calls)
        content: list[Fields] = [{"type": "text", "text": texts[0]}] if texts[0] or not calls else []
        for call in calls:
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call.arguments)})
        report = {"usage": self._usage(), "kvell": self._answer.report()}
        return self._message(content) | self._stop() | report

    def block(self, deltas: Sequence[tuple[int, Delta]]) -> bytes:
        """What one step brought. Blocks begin with their first part; an answer of nothing is an empty text."""
        events = [] if self._begun else [self._beginning()]
        self._begun = True
        for _, delta in deltas:
            if delta.text:
                events += [] if self._growing == "text" else self._begin({"type": "text", "text": ""})
                events.append(self._part({"type": "text_delta", "text": delta.text}))
            for call in delta.calls:
                events += self._add_call(call)
            if delta.finish:
                events += [] if self._num_blocks else self._begin({"type": "text", "text": ""})
                events += self._end()
        return b"".join(events)

    def ending(self) -> bytes:
        """Why it ended, and the figures."""
        report = {"usage": self._usage(), "kvell": self._answer.report()}
        return _event("message_delta", delta=self._stop(), **report) + _event("message_stop")

    def failure(self, error: RequestError | ServiceError) -> bytes:
        """The error as an event."""
        return named_event("error", anthropic_error(error.status, error.message))

    def _beginning(self) -> bytes:
        message = self._message([]) | {"stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=message | {"usage": self._usage() | {"output_tokens": 0}})

    def _add_call(self, call: CallDelta) -> list[bytes]:
        events = []
        if call.id is not None:
            events = self._begin({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
        if call.arguments:
            events.append(self._part({"type": "input_json_delta", "partial_json": call.arguments}))
        return events

    def _begin(self, block: Fields) -> list[bytes]:
        events = self._end()
        self._growing = str(block["type"])
        self._num_blocks += 1
        return [*events, _event("content_block_start", index=self._num_blocks - 1, content_block=block)]

    def _part(self, delta: Fields) -> bytes:
        return _event("content_block_delta", index=self._num_blocks - 1, delta=delta)

    def _end(self) -> list[bytes]:
        events = [_event("content_block_stop", index=self._num_blocks - 1)] if self._growing else []
        self._growing = ""
        return events

    def _message(self, content: Sequence[Fields]) -> Fields:
        about = {"id": self._answer.job.id, "type": "message", "role": "assistant", "model": self._model_id}
        return about | {"content": content}

    def _stop(self) -> Fields:
        choice = self._answer.choices[0]
        assert choice.finish is not None
        stopped = choice.finish == "stop" and choice.stop_string is not None
        return {
            "stop_reason": "stop_sequence" if stopped else REASONS[choice.finish],
            "stop_sequence": choice.stop_string if stopped else None,
        }

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


def _object(arguments: str) -> object:
    """A call's arguments as the object that Anthropic has; what is no object, as a cut call's, is told as text."""
    try:
        found = json.loads(arguments)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"_unfinished": arguments}


def _event(kind: str, **fields: object) -> bytes:
    return named_event(kind, {"type": kind} | fields)
