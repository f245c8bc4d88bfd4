"""Bodies that show what can be asked; in the API's description, and each of them is a test."""

from typing import Any

Examples = dict[str, dict[str, Any]]

USER = [{"role": "user", "content": "Name three colours."}]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}

COMPLETIONS: Examples = {
    "a text goes on": {"prompt": "Once upon a time", "max_tokens": 32},
    "two prompts, two texts each, with a seed": {"prompt": ["One", "Two"], "n": 2, "seed": 7, "max_tokens": 8},
    "a stream with usage": {
        "prompt": "Once upon a time",
        "max_tokens": 16,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "log-probabilities": {"prompt": "The sky is", "max_tokens": 4, "logprobs": 2, "temperature": 0},
    "a prompt's own": {"prompt": "The sky is blue", "max_tokens": 0, "echo": True, "logprobs": 0},
    "a receipt": {"prompt": "Once upon a time", "max_tokens": 8, "kvell_receipt": True},
}
CHAT: Examples = {
    "a question": {"messages": USER, "max_completion_tokens": 64},
    "a stream": {"messages": USER, "max_completion_tokens": 64, "stream": True},
    "a conversation": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            *USER,
            {"role": "assistant", "content": "Red, green, blue."},
            {"role": "user", "content": "And one more?"},
        ],
        "max_completion_tokens": 16,
        "stop": ["\n"],
    },
    "an answer in JSON": {
        "messages": USER,
        "max_completion_tokens": 64,
        "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY, "strict": True}},
    },
}
RESPONSES: Examples = {
    "a question": {"input": "Name three colours.", "max_output_tokens": 64},
    "a stream": {"input": USER, "instructions": "Be brief.", "max_output_tokens": 64, "stream": True},
}
MESSAGES: Examples = {
    "a question": {"messages": USER, "max_tokens": 64},
    "a stream": {"messages": USER, "system": "Be brief.", "max_tokens": 64, "stop_sequences": ["\n"], "stream": True},
}
COUNT_TOKENS: Examples = {"a question": {"messages": USER, "system": "Be brief."}}
TOKENIZE: Examples = {
    "a text": {"prompt": "Once upon a time"},
    "a text, piece by piece": {"prompt": "Once upon a time", "with_pieces": True},
    "messages": {"messages": USER},
}
DETOKENIZE: Examples = {"ids": {"tokens": [1, 2, 3]}}
