"""What a model's text comes apart into: content, and calls in parts. Every family's parser says it in these words."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CallDelta:
    """Part of the call number `index` of an answer. Its first part has id and name; arguments are pieces of JSON."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


@dataclass(slots=True)
class Parsed:
    """What more text brought: content first, then calls."""

    text: str = ""
    calls: list[CallDelta] = field(default_factory=list)


class CallParser(Protocol):
    """Reads one answer, however its text is cut into pieces."""

    def push(self, text: str) -> Parsed:
        """More text of the answer."""
        ...

    def flush(self) -> Parsed:
        """The answer has ended. What it had begun of a call, and could not be told yet, is dropped."""
        ...


@dataclass(slots=True)
class Call:
    """A whole call, put together from its parts."""

    id: str
    name: str
    arguments: str


def joined(deltas: list[CallDelta]) -> list[Call]:
    """The calls that these parts, in order, make up."""
    calls: list[Call] = []
    for delta in deltas:
        if delta.id is not None:
            assert delta.name is not None, f"call {delta.index} has no name"
            calls.append(Call(delta.id, delta.name, ""))
        calls[delta.index].arguments += delta.arguments
    return calls
