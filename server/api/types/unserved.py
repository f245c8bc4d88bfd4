"""Fields of OpenAI's API that kvell doesn't serve. They are accepted where their value asks for nothing."""

from typing import Any

from server.api.types.chat import ChatBody, Message
from server.api.types.completions import CompletionBody
from server.api.types.wire import Wire

# Fields of OpenAI's API that kvell doesn't serve, each with the values that ask for nothing (null always does).
UNSERVED_EVERYWHERE: dict[str, tuple[Any, ...]] = {"store": (False,), "service_tier": ("auto", "default")}
UNSERVED: dict[type[Wire], dict[str, tuple[Any, ...]]] = {
    CompletionBody: UNSERVED_EVERYWHERE | {"best_of": (1,), "suffix": ("",)},
    ChatBody: UNSERVED_EVERYWHERE
    | {
        "audio": (),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "modalities": (["text"],),
        "parallel_tool_calls": (True, False),
        "prediction": (),
        "prompt_cache_retention": (),
        "reasoning_effort": ("none",),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "verbosity": ("medium",),
        "web_search_options": (),
    },
    Message: {
        "annotations": ([],),
        "audio": (),
        "function_call": (),
        "name": (),
        "refusal": (),
        "tool_calls": ([],),
    },
}
