"""A real model: receipts made in a crowd and replayed one at a time, schemas that it follows, a function it calls."""

import json
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import jsonschema
import openai
import pytest

from tests.helpers.asking import CHAT, COMPLETIONS
from tests.helpers.complete import COMPLETE
from tests.helpers.live_server import Got, LiveServer, at_once
from tests.helpers.schemas import SCHEMAS

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NUM_RECEIPTS = 50 if COMPLETE else 16
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


@dataclass(frozen=True)
class Crowd:
    """What was asked at once and what came; wall_s: how long it all took."""

    made: list[tuple[dict[str, Any], Got]]
    wall_s: float


def last_of(number: int, got: Got) -> Any:
    """What has `kvell`: the answer, or a stream's last chunk."""
    return got.events()[-2] if number % 3 == 0 else got.json()


@pytest.fixture(scope="module")
def crowd(smollm: LiveServer) -> Crowd:
    """All at once, every third as a stream."""
    asked = requests()
    jobs = [
        partial(smollm.request, "POST", path, fields | {"stream": number % 3 == 0})
        for number, (path, fields) in enumerate(asked)
    ]
    began = time.monotonic()
    got = at_once(*jobs)
    wall_s = time.monotonic() - began
    assert [each.status for each in got] == [200] * NUM_RECEIPTS, [each.body for each in got if each.status != 200]
    return Crowd(list(zip([fields for _, fields in asked], got, strict=True)), wall_s)


def test_receipts_made_under_load_give_the_same_choices_alone(smollm: LiveServer, crowd: Crowd) -> None:
    if smollm.request("GET", "/v1/capabilities").json()["bit_exact"] is not True:
        pytest.skip("no native kernels here")
    finishes = set()
    for number, (fields, got) in enumerate(crowd.made):
        again = smollm.request("POST", "/v1/replay", {"receipt": last_of(number, got)["kvell"]["receipt"]})
        assert again.status == 200, (fields, again.body)
        assert again.json()["same"] is True, fields
        if number % 3:
            assert choices_of(again) == choices_of(got), fields
        finishes |= {choice["finish_reason"] for choice in again.json()["choices"]}
    assert finishes >= {"stop", "length", "tool_calls"}


def test_the_crowd_was_one(crowd: Crowd) -> None:
    """Else the test above would prove little: on average several ran or waited at the same time."""
    times = [last_of(number, got)["kvell"] for number, (_, got) in enumerate(crowd.made)]
    lives_s = sum(each["queue_ms"] + each["prompt_ms"] + each["decode_ms"] for each in times) / 1000
    assert lives_s > 3 * crowd.wall_s


def test_it_follows_thirty_schemas(smollm: LiveServer, record_property: Any) -> None:
    """All answers that end by themselves are valid, at temperature 0 and 1. How many do is up to the model."""
    temperatures = (0, 1) if COMPLETE else (None,)  # None: in turn
    asked = [
        (schema, number % 2 if temperature is None else temperature, name)
        for temperature in temperatures
        for number, (name, schema) in enumerate(SCHEMAS.items())
    ]
    bodies: list[dict[str, Any]] = [
        {
            "messages": [{"role": "user", "content": f"Give me JSON for: {name}"}],
            "temperature": temperature,
            "seed": 1,
            "max_tokens": 200 if COMPLETE else 120,
            "response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}},
        }
        for schema, temperature, name in asked
    ]
    answers = at_once(*(partial(smollm.request, "POST", CHAT, body) for body in bodies))
    ends = Counter[str]()
    for answer, body, (schema, _, name) in zip(answers, bodies, asked, strict=True):
        (choice,) = answer.json()["choices"]
        ends[choice["finish_reason"]] += 1
        if choice["finish_reason"] == "stop":
            value = json.loads(choice["message"]["content"])
            jsonschema.validate(value, schema, cls=jsonschema.Draft202012Validator)
        else:
            assert answer.json()["usage"]["completion_tokens"] == body["max_tokens"], name
    record_property("finish_reasons", dict(ends))
    print(f"ended by: {dict(ends)}")
    assert ends.keys() <= {"stop", "length"}
    assert ends["stop"] > len(asked) / 3, "else little was shown"


def test_it_calls_the_function_that_the_question_needs(smollm: LiveServer) -> None:
    with openai.OpenAI(base_url=f"{smollm.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="smollm2-135m-instruct",
            messages=[{"role": "user", "content": "Look up the word 'kettle', please."}],
            tools=[TOOL],  # type: ignore[list-item]
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=0,
            max_tokens=60,
        )
    (call,) = answer.choices[0].message.tool_calls or ()
    assert call.type == "function"
    assert call.function.name == "look_up"
    jsonschema.validate(json.loads(call.function.arguments), TOOL["function"]["parameters"])
