"""The bodies of POST /tokenize and /detokenize."""

from typing import Annotated

from annotated_types import Len

from server.api.types.chat import Message
from server.api.types.wire import MAX_MESSAGES, Wire


class TokenizeBody(Wire):
    """POST /tokenize: a text, or messages under the model's chat template."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Len(1, MAX_MESSAGES)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    with_pieces: bool | None = None


class DetokenizeBody(Wire):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]
