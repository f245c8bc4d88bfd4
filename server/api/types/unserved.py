"""Fields of OpenAI's API that kvell doesn't serve. They are accepted where their value asks for nothing."""

from typing import Any

from server.api.types.anthropic import CountTokensBody, MessagesBody
from server.api.types.chat import ChatBody, Message
from server.api.types.completions import CompletionBody
from server.api.types.responses import ResponsesBody
from server.api.types.wire import Wire

# Fields of OpenAI's API that kvell doesn't serve, each with the values that ask for nothing (null always does).
UNSERVED_EVERYWHERE: dict[str, tuple[Any, ...]] = {"store": (False,), "service_tier": ("auto", "default")}
UNSERVED_BY_MESSAGES: dict[str, tuple[Any, ...]] = {
    "betas": ([],),
    "context_management": (),
    "speed": ("standard",),
    "thinking": ({"type": "disabled"},),
}
UNSERVED: dict[type[Wire], dict[str, tuple[Any, ...]]] = {
    CompletionBody: UNSERVED_EVERYWHERE | {"suffix": ("",)},
    ChatBody: UNSERVED_EVERYWHERE
    | {
        "audio": (),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "modalities": (["text"],),
        "prediction": (),
        "prompt_cache_retention": (),
        "reasoning_effort": ("none",),
        "verbosity": ("medium",),
        "web_search_options": (),
    },
    ResponsesBody: UNSERVED_EVERYWHERE
    | {
        "background": (False,),
        "context_management": ([],),
        "conversation": (),
        "max_tool_calls": (),
        "moderation": (),
        "previous_response_id": (),
        "prompt": (),
        "prompt_cache_retention": (),
        "reasoning": ({}, {"effort": "none"}),
        "truncation": ("disabled",),
    },
    CountTokensBody: UNSERVED_BY_MESSAGES,
    MessagesBody: UNSERVED_BY_MESSAGES
    | {"container": (), "inference_geo": (), "mcp_servers": ([],), "service_tier": ("auto", "standard_only")},
    Message: {
        "annotations": ([],),
        "audio": (),
        "function_call": (),
        "refusal": (),
    },
}
