"""What a response is made of: messages and function calls, growing. Knows shapes only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from model.tokenizer.base import Tokenizer
from server.api.choices import ScoredToken
from server.api.logprobs import chat_logprobs
from server.api.tools.calls import Call
from server.api.wording import Fields

Status = Literal["in_progress", "completed", "incomplete"]


@dataclass(slots=True)
class MessageItem:
    """Text of the assistant's. scored: its tokens, where their log-probabilities were asked for."""

    id: str
    text: str = ""
    scored: list[ScoredToken] = field(default_factory=list)

    def fields(self, tokenizer: Tokenizer, status: Status) -> Fields:
        """The whole item; of one that begins, without its part."""
        content = [] if status == "in_progress" else [self.part(tokenizer)]
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": content}

    def part(self, tokenizer: Tokenizer) -> Fields:
        """Its only content part."""
        scored = logprobs(tokenizer, self.scored)
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": scored}


@dataclass(slots=True)
class CallItem:
    """A call of a function."""

    id: str
    call: Call

    def fields(self, tokenizer: Tokenizer, status: Status) -> Fields:
        """The whole item."""
        said: Fields = {"call_id": self.call.id, "name": self.call.name, "arguments": self.call.arguments}
        return {"id": self.id, "type": "function_call", "status": status} | said


Item = MessageItem | CallItem


def logprobs(tokenizer: Tokenizer, scored: Sequence[ScoredToken]) -> object:
    """In chat's shape."""
    return chat_logprobs(tokenizer, scored)["content"]


def items_of(job_id: str, text: str, scored: Sequence[ScoredToken], calls: Sequence[Call]) -> list[Item]:
    """The items of a whole answer: its text, if it has any or nothing else, then its calls."""
    items: list[Item] = []
    if text or not calls:
        items.append(MessageItem(item_id("msg", job_id, 0), text, list(scored)))
    for call in calls:
        items.append(CallItem(item_id("fc", job_id, len(items)), call))
    return items


def item_id(prefix: str, job_id: str, index: int) -> str:
    """An id that is the item's alone; the first one's is the response's own, with another prefix."""
    unique = job_id.removeprefix("resp_")
    return f"{prefix}_{unique}_{index}" if index else f"{prefix}_{unique}"
