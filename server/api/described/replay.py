"""The answer of /v1/replay."""

from typing import Literal

from server.api.described.openai import ChatChoice, CompletionChoice, Usage
from server.api.types.wire import Wire


class ReplayAnswer(Wire):
    """The choices again, in the words of the endpoint that the receipt is from; same: as their digest says."""

    id: str
    object: Literal["replay"]
    created: int
    model: str
    choices: list[CompletionChoice] | list[ChatChoice]
    usage: Usage
    same: bool
