"""Receipts made in a crowd, replayed one at a time: the same choices, byte for byte, on the native kernels."""

import json
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.helpers.asking import CHAT, COMPLETIONS
from tests.helpers.live_server import Got, LiveServer, at_once

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NUM_RECEIPTS = 50
WORDS = [
    "Once upon a time",
    "The capital of France is",
    "def add(a, b):\n    return",
    "1, 2, 3,",
    "🎉 means",
    "Q: Why?\nA:",
]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "maxLength": 8}},
            "required": ["word"],
            "additionalProperties": False,
        },
    },
}


def sampling(random: Random) -> dict[str, Any]:
    """Penalties, filters, stops and constraints in any mixture."""
    pick = random.choice
    fields: dict[str, Any] = {
        "temperature": pick([0, 0.7, 1.3]),
        "n": pick([1, 1, 2, 3]),
        "max_tokens": random.randint(4, 28),
        "kvell_receipt": True,
    }
    rarer: list[dict[str, Any]] = [
        {"seed": random.randrange(1000)},
        {"repetition_penalty": 1.2},
        {"frequency_penalty": 0.7, "presence_penalty": -0.3},
        {"dry_multiplier": 0.8, "dry_allowed_length": 1},
        {"xtc_probability": 0.5, "xtc_threshold": 0.05},
        {"typical_p": 0.8},
        {"top_k": 40, "top_p": 0.9},
        {"min_p": 0.05},
        {"bad_words": ["the", "a"]},
        {"logit_bias": {"28": 2.5}},
        {"stop": ["\n", " is"], "include_stop_str_in_output": True},
        {"min_tokens": 3},
        {"prompt_logprobs": 1},
        {"return_token_ids": True},
    ]
    for each in random.sample(rarer, random.randint(0, 5)):
        fields |= each
    constraint: dict[str, Any] = random.choice(
        [
            {},
            {},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}},
            {"structured_outputs": {"regex": "[a-z ]{3,20}\\."}},
            {"structured_outputs": {"choice": ["yes", "no", "perhaps"]}},
        ]
    )
    return fields | constraint


def requests() -> list[tuple[str, dict[str, Any]]]:
    random = Random(11)
    found = []
    for number in range(NUM_RECEIPTS):
        fields, words = sampling(random), random.choice(WORDS)
        if number % 10 == 0 or random.random() < 0.5:
            chat = {"messages": [{"role": "user", "content": words}]}
            chat |= random.choice([{}, {"logprobs": True, "top_logprobs": 2}])
            if number % 10 == 0:
                fields = {k: v for k, v in fields.items() if k not in ("response_format", "structured_outputs", "stop")}
                chat |= {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
                fields["max_tokens"] = 60
            found.append((CHAT, fields | chat))
        else:
            more = random.choice([{}, {"logprobs": 2}, {"echo": True, "logprobs": 1}, {"prompt": [words, "And"]}])
            found.append((COMPLETIONS, fields | {"prompt": words} | more))
    return found


def choices_of(got: Got) -> bytes:
    """The choices as they were sent."""
    return json.dumps(got.json()["choices"], ensure_ascii=False).encode()


@pytest.fixture(scope="module")
def made(smollm: LiveServer) -> list[tuple[dict[str, Any], Got]]:
    """All at once, every third as a stream, whose text is then put together."""
    asked = requests()
    jobs = [
        partial(smollm.request, "POST", path, fields | {"stream": number % 3 == 0})
        for number, (path, fields) in enumerate(asked)
    ]
    got = at_once(*jobs)
    assert [each.status for each in got] == [200] * NUM_RECEIPTS, [each.body for each in got if each.status != 200]
    return list(zip([fields for _, fields in asked], got, strict=True))


def test_receipts_made_under_load_give_the_same_choices_alone(
    smollm: LiveServer, made: list[tuple[dict[str, Any], Got]]
) -> None:
    if smollm.request("GET", "/v1/capabilities").json()["bit_exact"] is not True:
        pytest.skip("no native kernels here")
    finishes = set()
    for number, (fields, got) in enumerate(made):
        streamed = number % 3 == 0
        last = got.events()[-2] if streamed else got.json()
        again = smollm.request("POST", "/v1/replay", {"receipt": last["kvell"]["receipt"]})
        assert again.status == 200, (fields, again.body)
        assert again.json()["same"] is True, fields
        if not streamed:
            assert choices_of(again) == choices_of(got), fields
        finishes |= {choice["finish_reason"] for choice in again.json()["choices"]}
    assert finishes >= {"stop", "length", "tool_calls"}


def test_the_crowd_was_one(made: list[tuple[dict[str, Any], Got]]) -> None:
    """Else the test above would prove little: most of them waited or ran beside others."""
    queues = [(got.events()[-2] if number % 3 == 0 else got.json())["kvell"] for number, (_, got) in enumerate(made)]
    assert sum(each["queue_ms"] + each["prompt_ms"] > 100 for each in queues) > NUM_RECEIPTS / 2
