"""An answer in the words of OpenAI's Responses API: one response object, or the events that build it up.

https://platform.openai.com/docs/api-reference/responses-streaming. Knows shapes only.
"""

import time
from collections.abc import Sequence

from model.tokenizer.base import Tokenizer
from server.api.answer import Answer
from server.api.choices import Delta, ScoredToken
from server.api.errors import describe
from server.api.responses_items import CallItem, Item, MessageItem, Status, item_id, items_of, logprobs
from server.api.sse import named_event
from server.api.tools.calls import Call, CallDelta, joined
from server.api.types import ResponsesBody
from server.api.wording import Fields
from server.engine.errors import RequestCancelled, RequestError, ServiceError

REPEATED = {"text", "tools", "tool_choice"}
UNSAID = {"description": None, "parameters": None, "strict": None}  # of a tool


class ResponsesWriter:
    """Writes the one choice of `answer`."""

    def __init__(self, answer: Answer, tokenizer: Tokenizer, model_id: str) -> None:
        assert isinstance(answer.job.asked, ResponsesBody)
        self._answer = answer
        self._tokenizer = tokenizer
        self._model_id = model_id
        self._asked = answer.job.asked
        self._created = int(time.time())
        self._next_number = 0
        self._begun = False
        self._items: list[Item] = []
        self._growing: Item | None = None  # the last of the items, while more of it may come

    def whole(self, texts: Sequence[str], scored: Sequence[Sequence[ScoredToken]]) -> Fields:
        """The response object of a complete answer."""
        calls = joined(self._answer.choices[0].calls)
        self._items = items_of(self._answer.job.id, texts[0], self._shown(scored[0]), calls)
        return self._response(self._ended)

    def block(self, deltas: Sequence[tuple[int, Delta]]) -> bytes:
        """What one step brought. Items begin with their first part; an answer of nothing is an empty message."""
        events = [] if self._begun else self._beginning()
        self._begun = True
        for _, delta in deltas:
            if delta.text or (self._shown(delta.scored) and not delta.calls):
                events += self._add_text(delta.text, self._shown(delta.scored))
            for call in delta.calls:
                events += self._add_call(call)
            if delta.finish:
                events += [] if self._items else self._begin(MessageItem(self._new_id("msg")))
                events += self._end(self._ended)
        return b"".join(events)

    def ending(self) -> bytes:
        """The event that holds the whole response."""
        return self._event(f"response.{self._ended}", response=self._response(self._ended))

    def failure(self, error: RequestError | ServiceError) -> bytes:
        """The error with its code, and the response as far as it came."""
        begun = b"" if self._begun else b"".join(self._beginning())
        status = "cancelled" if isinstance(error, RequestCancelled) else "failed"
        told: Fields = {"code": "server_error", "message": error.message}
        said = self._event("error", **{k: v for k, v in describe(error)["error"].items() if k != "type"})
        return begun + said + self._event("response.failed", response=self._response(status) | {"error": told})

    # items, as a stream brings them

    def _add_text(self, text: str, scored: Sequence[ScoredToken]) -> list[bytes]:
        events = []
        if not isinstance(self._growing, MessageItem):
            events = self._end("completed") + self._begin(MessageItem(self._new_id("msg")))
        assert isinstance(self._growing, MessageItem)
        self._growing.text += text
        self._growing.scored += scored
        said = logprobs(self._tokenizer, scored)
        return [*events, self._part_event("response.output_text.delta", delta=text, logprobs=said)]

    def _add_call(self, part: CallDelta) -> list[bytes]:
        events = []
        if part.id is not None:
            assert part.name is not None
            item = CallItem(self._new_id("fc"), Call(part.id, part.name, ""))
            events = self._end("completed") + self._begin(item)
        assert isinstance(self._growing, CallItem)
        self._growing.call.arguments += part.arguments
        if part.arguments:
            events.append(self._item_event("response.function_call_arguments.delta", delta=part.arguments))
        return events

    def _begin(self, item: Item) -> list[bytes]:
        self._items.append(item)
        self._growing = item
        said = item.fields(self._tokenizer, "in_progress")
        events = [self._event("response.output_item.added", output_index=len(self._items) - 1, item=said)]
        if isinstance(item, MessageItem):
            events.append(self._part_event("response.content_part.added", part=item.part(self._tokenizer)))
        return events

    def _end(self, status: Status) -> list[bytes]:
        """Nothing more comes of the item that grows, if there is one."""
        item, events = self._growing, []
        if isinstance(item, MessageItem):
            part = item.part(self._tokenizer)
            text, scored = part["text"], part["logprobs"]
            events.append(self._part_event("response.output_text.done", text=text, logprobs=scored))
            events.append(self._part_event("response.content_part.done", part=part))
        elif item is not None:
            done = "response.function_call_arguments.done"
            events.append(self._item_event(done, name=item.call.name, arguments=item.call.arguments))
        if item is not None:
            said = item.fields(self._tokenizer, status)
            events.append(self._event("response.output_item.done", output_index=len(self._items) - 1, item=said))
        self._growing = None
        return events

    def _new_id(self, prefix: str) -> str:
        return item_id(prefix, self._answer.job.id, len(self._items))

    # events

    def _beginning(self) -> list[bytes]:
        response = self._response("in_progress")
        return [self._event(f"response.{kind}", response=response) for kind in ("created", "in_progress")]

    def _part_event(self, kind: str, **fields: object) -> bytes:
        return self._item_event(kind, content_index=0, **fields)

    def _item_event(self, kind: str, **fields: object) -> bytes:
        assert self._growing is not None
        return self._event(kind, item_id=self._growing.id, output_index=len(self._items) - 1, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        numbered: Fields = {"type": kind, "sequence_number": self._next_number} | fields
        self._next_number += 1
        return named_event(kind, numbered)

    # the response

    @property
    def _ended(self) -> Status:
        return "incomplete" if self._answer.choices[0].finish == "length" else "completed"

    def _shown(self, scored: Sequence[ScoredToken]) -> Sequence[ScoredToken]:
        return scored if self._answer.job.shown.logprobs is not None else ()

    def _output(self, status: str) -> list[Fields]:
        """All items; the last one of an answer that was cut, or is not complete, is incomplete."""
        cut: Status = "completed" if status == "completed" else "incomplete"
        whole = [item.fields(self._tokenizer, "completed") for item in self._items[:-1]]
        return whole + [item.fields(self._tokenizer, cut) for item in self._items[-1:]]

    def _response(self, status: str) -> Fields:
        over = status in ("completed", "incomplete")
        response = {
            "id": self._answer.job.id,
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": self._model_id,
            "output": self._output(status),
            "usage": self._usage() if over else None,
        } | self._repeated()
        return response | {"kvell": self._answer.report()} if over else response

    def _repeated(self) -> Fields:
        """What was asked, with the defaults that counted."""
        asked, params = self._asked, self._answer.job.requests[0].params
        said = asked.model_dump(include=REPEATED, exclude_none=True, by_alias=True)
        return {
            "background": False,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None,
            "prompt_cache_key": asked.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": asked.safety_identifier,
            "service_tier": "default",
            "store": False,
            "temperature": params.temperature,
            "text": {"format": {"type": "text"}, "verbosity": "medium"} | said.get("text", {}),
            "tool_choice": _tool_choice(said.get("tool_choice")),
            "tools": [UNSAID | tool for tool in said.get("tools", [])],
            "top_logprobs": asked.top_logprobs or 0,
            "top_p": params.top_p,
            "truncation": "disabled",
            "user": asked.user,
        }

    def _usage(self) -> Fields:
        usage = self._answer.usage()
        details = usage["prompt_tokens_details"]
        assert isinstance(details, dict)
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": details["cached_tokens"], "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }


def _tool_choice(asked: Fields | None) -> object:
    if asked is None:
        return "auto"
    return asked if "name" in asked else asked["type"]
