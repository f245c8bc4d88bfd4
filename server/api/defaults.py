"""What counts when a request leaves a field out, for whoever asks. A test holds it to what really counts.

Knows names and values; nothing here is used to answer a request.
"""

from dataclasses import asdict

from server.api.serving import SamplingDefaults

# Fields whose absence means something that can also be said. All others are off, drawn, or the rest of the context.
FIXED: dict[str, object] = {
    "add_generation_prompt": True,
    "add_special_tokens": True,
    "echo": False,
    "frequency_penalty": 0.0,
    "ignore_eos": False,
    "include_obfuscation": False,
    "include_usage": False,
    "logit_bias": {},
    "min_tokens": 0,
    "n": 1,
    "presence_penalty": 0.0,
    "stop": [],
    "stop_token_ids": [],
    "stream": False,
    "with_pieces": False,
}
BY_TYPE: dict[str, dict[str, object]] = {"CompletionBody": {"max_tokens": 16}, "ChatBody": {"logprobs": False}}


def default_of(wire: str, field: str, model: SamplingDefaults) -> object:
    """The default of a field of the wire type of this name; None where leaving it out is the only way to say it."""
    return (FIXED | asdict(model) | BY_TYPE.get(wire, {})).get(field)
