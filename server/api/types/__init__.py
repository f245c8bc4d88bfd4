"""The fields that each endpoint serves, with their types and ranges; docs/api.md says them in prose.

null is the same as leaving a field out. Nothing here knows defaults, the model or the engine.
"""

from server.api.types.anthropic import CountTokensBody, MessagesBody
from server.api.types.chat import ChatBody, Message
from server.api.types.completions import CompletionBody, Prompt
from server.api.types.generation import GenerationBody, StreamOptions
from server.api.types.replay import Receipt, ReplayBody
from server.api.types.responses import ResponsesBody
from server.api.types.tokenize import DetokenizeBody, TokenizeBody
from server.api.types.unserved import UNSERVED
from server.api.types.wire import Wire

__all__ = [
    "UNSERVED",
    "ChatBody",
    "CompletionBody",
    "CountTokensBody",
    "DetokenizeBody",
    "GenerationBody",
    "Message",
    "MessagesBody",
    "Prompt",
    "Receipt",
    "ReplayBody",
    "ResponsesBody",
    "StreamOptions",
    "TokenizeBody",
    "Wire",
]
