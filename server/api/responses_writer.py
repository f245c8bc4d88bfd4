"""An answer in the words of OpenAI's Responses API: one response object, or the events that build it up.

https://platform.openai.com/docs/api-reference/responses-streaming. Knows shapes only.
"""

import time
from collections.abc import Iterable, Sequence

from model.tokenizer.base import Tokenizer
from server.api.answer import Answer
from server.api.choices import Delta, ScoredToken
from server.api.errors import describe
from server.api.logprobs import chat_logprobs
from server.api.sse import named_event
from server.api.types import ResponsesBody
from server.api.wording import Fields
from server.engine.errors import RequestCancelled, RequestError, ServiceError

REPEATED = {"text", "tools", "tool_choice"}
UNSAID = {"description": None, "parameters": None, "strict": None}  # of a tool


class ResponsesWriter:
    """Writes the one choice of `answer`. Ids of items are made of the response's."""

    def __init__(self, answer: Answer, tokenizer: Tokenizer, model_id: str) -> None:
        assert isinstance(answer.job.asked, ResponsesBody)
        self._answer = answer
        self._tokenizer = tokenizer
        self._model_id = model_id
        self._asked = answer.job.asked
        self._created = int(time.time())
        self._item_id = answer.job.id.replace("resp_", "msg_")
        self._next_number = 0
        self._begun = self._opened = False
        self._text = ""
        self._scored: list[ScoredToken] = []

    def whole(self, texts: Sequence[str], scored: Sequence[Sequence[ScoredToken]]) -> Fields:
        """The response object of a complete answer."""
        self._text, self._scored = texts[0], list(scored[0])
        return self._response(self._final_status(), [self._item(self._final_status())])

    def block(self, deltas: Iterable[tuple[int, Delta]]) -> bytes:
        """What one step brought. The message's item begins with its first text."""
        events = [] if self._begun else self._beginning()
        self._begun = True
        for _, delta in deltas:
            if delta.text or delta.scored:
                events += [*self._open_item(), self._delta(delta)]
            if delta.finish:
                events += self._open_item() + self._close_item()
        return b"".join(events)

    def ending(self) -> bytes:
        """The event that holds the whole response."""
        status = self._final_status()
        return self._event(f"response.{status}", response=self._response(status, [self._item(status)]))

    def failure(self, error: RequestError | ServiceError) -> bytes:
        """The error with its code, and the response as far as it came."""
        begun = b"" if self._begun else b"".join(self._beginning())
        status = "cancelled" if isinstance(error, RequestCancelled) else "failed"
        told: Fields = {"code": "server_error", "message": error.message}
        output = [self._item("incomplete")] if self._opened else []
        said = self._event("error", **{k: v for k, v in describe(error)["error"].items() if k != "type"})
        return begun + said + self._event("response.failed", response=self._response(status, output, error=told))

    # events

    def _beginning(self) -> list[bytes]:
        response = self._response("in_progress", [])
        return [self._event(f"response.{kind}", response=response) for kind in ("created", "in_progress")]

    def _open_item(self) -> list[bytes]:
        if self._opened:
            return []
        self._opened = True
        item = self._item("in_progress") | {"content": []}
        return [
            self._event("response.output_item.added", output_index=0, item=item),
            self._event("response.content_part.added", **self._place(), part=self._part()),
        ]

    def _delta(self, delta: Delta) -> bytes:
        self._text += delta.text
        self._scored += delta.scored
        scored = self._logprobs(delta.scored)
        return self._event("response.output_text.delta", **self._place(), delta=delta.text, logprobs=scored)

    def _close_item(self) -> list[bytes]:
        scored = self._logprobs(self._scored)
        item = self._item(self._final_status())
        return [
            self._event("response.output_text.done", **self._place(), text=self._text, logprobs=scored),
            self._event("response.content_part.done", **self._place(), part=self._part()),
            self._event("response.output_item.done", output_index=0, item=item),
        ]

    def _event(self, kind: str, **fields: object) -> bytes:
        numbered: Fields = {"type": kind, "sequence_number": self._next_number} | fields
        self._next_number += 1
        return named_event(kind, numbered)

    def _place(self) -> Fields:
        return {"item_id": self._item_id, "output_index": 0, "content_index": 0}

    # objects

    def _final_status(self) -> str:
        return "incomplete" if self._answer.choices[0].finish == "length" else "completed"

    def _item(self, status: str) -> Fields:
        content = [self._part()]
        return {"id": self._item_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _part(self) -> Fields:
        scored = self._logprobs(self._scored)
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": scored}

    def _logprobs(self, scored: Sequence[ScoredToken]) -> object:
        return chat_logprobs(self._tokenizer, scored)["content"]

    def _response(self, status: str, output: Sequence[Fields], error: Fields | None = None) -> Fields:
        ended = status in ("completed", "incomplete")
        return {
            "id": self._answer.job.id,
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": self._model_id,
            "output": output,
            "usage": self._usage() if ended else None,
        } | self._repeated()

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
