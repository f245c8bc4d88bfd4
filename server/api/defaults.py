"""What counts when a request leaves a field out, for whoever asks. A test holds it to what really counts.

Knows names and values; nothing here is used to answer a request.
"""

from dataclasses import asdict

from server.api.serving import SamplingDefaults

# Fields whose absence means something that can also be said. All others are off, drawn, or the rest of the context.
FIXED: dict[str, object] = {
    "add_generation_prompt": True,
    "add_special_tokens": True,
    "bad_words": [],
    "continuous_usage_stats": False,
    "dry_allowed_length": 2,
    "dry_base": 1.75,
    "dry_multiplier": 0.0,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["\n", ":", '"', "*"],
    "echo": False,
    "frequency_penalty": 0.0,
    "ignore_eos": False,
    "include_stop_str_in_output": False,
    "include_obfuscation": False,
    "include_progress": False,
    "include_usage": False,
    "logit_bias": {},
    "min_tokens": 0,
    "kvell_receipt": False,
    "n": 1,
    "presence_penalty": 0.0,
    "return_token_ids": False,
    "stop": [],
    "stop_token_ids": [],
    "stream": False,
    "typical_p": 1.0,
    "with_pieces": False,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
}
BY_TYPE: dict[str, dict[str, object]] = {"CompletionBody": {"max_tokens": 16}, "ChatBody": {"logprobs": False}}


def default_of(wire: str, field: str, model: SamplingDefaults) -> object:
    """The default of a field of the wire type of this name; None where leaving it out is the only way to say it."""
    return (FIXED | asdict(model) | BY_TYPE.get(wire, {})).get(field)
