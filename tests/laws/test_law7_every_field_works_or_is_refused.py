"""Law 7: every field works or is refused by name. One line per field and value; a new field must be added here."""

from typing import Any

import pytest

from server.api.types import UNSERVED, ChatBody, CompletionBody, DetokenizeBody, TokenizeBody, Wire
from server.engine.request import Request
from tests.helpers.api_world import World, make_world, says
from tests.helpers.asgi import Answered, call

PATHS: dict[type[Wire], str] = {CompletionBody: "/v1/completions", ChatBody: "/v1/chat/completions"}
NEEDED: dict[type[Wire], dict[str, Any]] = {
    CompletionBody: {"prompt": "hi"},
    ChatBody: {"messages": [{"role": "user", "content": "hi"}]},
}
BOTH = (CompletionBody, ChatBody)

# field -> (value, what it becomes in the engine's request)
SAMPLING: dict[str, list[tuple[Any, Any]]] = {
    "temperature": [(0, 0.0), (0.5, 0.5), (2, 2.0)],
    "top_p": [(0, 0.0), (1, 1.0), (0.25, 0.25)],
    "top_k": [(0, 0), (-1, 0), (1, 1), (10**6, 270)],
    "min_p": [(0, 0.0), (1, 1.0)],
    "repetition_penalty": [(0.5, 0.5), (10, 10.0)],
    "presence_penalty": [(-2, -2.0), (2.0, 2.0)],
    "frequency_penalty": [(-2, -2.0), (1.5, 1.5)],
    "logit_bias": [({}, {}), ({"5": -100, "269": 100}, {5: -100.0, 269: 100.0})],
    "seed": [(0, 0), (-1, -1), (2**63 - 1, 2**63 - 1), (-(2**63), -(2**63))],
    "min_tokens": [(0, 0), (3, 3)],
    "typical_p": [(1, 1.0), (0.25, 0.25)],
    "xtc_probability": [(0, 0.0), (1, 1.0)],
    "xtc_threshold": [(0, 0.0), (0.3, 0.3)],
    "dry_multiplier": [(0, 0.0), (0.8, 0.8)],
    "dry_base": [(1, 1.0), (1.75, 1.75)],
    "dry_allowed_length": [(1, 1), (7, 7)],
    "dry_penalty_last_n": [(-1, -1), (0, 0), (100, 100)],
    "allowed_token_ids": [([5], (5,)), ([269, 5, 5], (5, 269))],
    "bad_words": [([], ()), (["é", "a"], ((32, 97), (32, 195, 169), (97,), (195, 169)))],
}

BAD_ANYWHERE: list[tuple[str, Any]] = [
    ("model", 5),
    ("model", ["tiny"]),
    ("max_tokens", 0),  # with nothing else that would come back
    ("max_tokens", -5),
    ("max_tokens", "ten"),
    ("max_tokens", 1.0),
    ("max_tokens", True),
    ("max_tokens", 2**31),
    ("max_tokens", 10**4000),
    ("min_tokens", -1),
    ("min_tokens", 10**30),
    ("temperature", -1),
    ("temperature", -1e-9),
    ("temperature", 2.1),
    ("temperature", "hot"),
    ("temperature", "1"),
    ("temperature", True),
    ("temperature", [1]),
    ("top_p", 1.5),
    ("top_p", -0.1),
    ("top_k", -2),
    ("top_k", 1.5),
    ("min_p", 1.1),
    ("min_p", -0.1),
    ("repetition_penalty", 0),
    ("repetition_penalty", -1),
    ("repetition_penalty", 11),
    ("presence_penalty", "x"),
    ("presence_penalty", -2.1),
    ("frequency_penalty", 2.1),
    ("logit_bias", [1]),
    ("logit_bias", {"x": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"01": 1}),
    ("logit_bias", {"1_0": 1}),
    ("logit_bias", {"\u0661": 1}),
    ("logit_bias", {"9" * 5000: 1}),
    ("logit_bias", {"5": 101}),
    ("logit_bias", {"5": "1"}),
    ("logit_bias", {"270": 1}),
    ("logit_bias", {str(i): 1 for i in range(1025)}),
    ("seed", "x"),
    ("seed", 1.5),
    ("seed", 2**63),
    ("seed", 2**70),
    ("n", 0),
    ("n", -1),
    ("n", 129),
    ("n", 10**6),
    ("n", 17),  # the world's limit on sequences
    ("stop", 5),
    ("stop", [5]),
    ("stop", ""),
    ("stop", [""]),
    ("stop", ["a", ""]),
    ("stop", ["a"] * 17),
    ("stop", "a" * 1001),
    ("stop", {"a": 1}),
    ("stop_token_ids", 5),
    ("stop_token_ids", ["5"]),
    ("stop_token_ids", [270]),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [10**40]),
    ("stop_token_ids", [1] * 129),
    ("typical_p", 0),
    ("typical_p", 1.1),
    ("xtc_probability", -0.1),
    ("xtc_probability", 2),
    ("xtc_threshold", 1.5),
    ("dry_multiplier", -1),
    ("dry_multiplier", "0.8"),
    ("dry_base", 0.5),
    ("dry_allowed_length", 0),
    ("dry_allowed_length", 1.5),
    ("dry_penalty_last_n", -2),
    ("dry_sequence_breakers", "\n"),
    ("dry_sequence_breakers", [""]),
    ("dry_sequence_breakers", ["a"] * 17),
    ("dry_sequence_breakers", [1]),
    ("bad_words", "word"),
    ("bad_words", [""]),
    ("bad_words", ["a" * 201]),
    ("bad_words", ["a"] * 129),
    ("bad_words", [5]),
    ("allowed_token_ids", []),
    ("allowed_token_ids", 5),
    ("allowed_token_ids", [270]),
    ("allowed_token_ids", [-1]),
    ("allowed_token_ids", ["5"]),
    ("include_stop_str_in_output", "yes"),
    ("truncate_prompt_tokens", 0),
    ("truncate_prompt_tokens", -1),
    ("truncate_prompt_tokens", 2.0),
    ("timeout_ms", 0),
    ("timeout_ms", -5),
    ("timeout_ms", 1.5),
    ("timeout_ms", 86_400_001),
    ("prompt_logprobs", -1),
    ("prompt_logprobs", 21),
    ("prompt_logprobs", True),
    ("return_token_ids", "yes"),
    ("kvell_receipt", 1),
    ("ignore_eos", "no"),
    ("ignore_eos", 1),
    ("stream", "maybe"),
    ("stream", 1),
    ("stream_options", True),
    ("stream_options", {"include_usage": 1}),
    ("stream_options", {"include_obfuscation": True}),
    ("stream_options", {"continuous_usage_stats": "yes"}),
    ("stream_options", {"include_progress": 1}),
    ("stream_options", {"include_usage": True}),  # without stream
    ("stream_options", {}),
    ("priority", 101),
    ("priority", 1.5),
    ("cache_salt", ""),
    ("cache_salt", "x" * 257),
    ("user", 5),
    ("metadata", {"a": 1}),
    ("metadata", "a"),
    ("metadata", {str(i): "" for i in range(17)}),
    ("response_format", "json_object"),
    ("response_format", {"type": "json"}),
    ("response_format", {"type": "json_schema"}),
    ("response_format", {"type": "text", "more": 1}),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "a", "schema": {"not": {}}}}),
    ("structured_outputs", {}),
    ("structured_outputs", {"regex": 5}),
    ("structured_outputs", {"json_object": False}),
    ("structured_outputs", {"choice": [5]}),
    ("structured_outputs", {"grammar": "begin: x"}),
]
BAD: list[tuple[type[Wire], str, Any]] = [(kind, name, value) for kind in BOTH for name, value in BAD_ANYWHERE] + [
    (CompletionBody, "prompt", None),
    (CompletionBody, "prompt", 5),
    (CompletionBody, "prompt", {}),
    (CompletionBody, "prompt", []),
    (CompletionBody, "prompt", ["a", 5]),
    (CompletionBody, "prompt", [5, "a"]),
    (CompletionBody, "prompt", [5, True]),
    (CompletionBody, "prompt", [5.0]),
    (CompletionBody, "prompt", [[5], "a"]),
    (CompletionBody, "prompt", [[[5]]]),
    (CompletionBody, "prompt", [None]),
    (CompletionBody, "prompt", [270]),
    (CompletionBody, "prompt", [[1], [-1]]),
    (CompletionBody, "prompt", [10**7]),
    (CompletionBody, "prompt", [10**400]),
    (CompletionBody, "prompt", ["a"] * 17),
    (CompletionBody, "logprobs", 21),
    (CompletionBody, "logprobs", -1),
    (CompletionBody, "logprobs", True),
    (CompletionBody, "echo", "yes"),
    (CompletionBody, "best_of", 0),
    (CompletionBody, "best_of", 129),
    (CompletionBody, "best_of", True),
    (CompletionBody, "best_of", 17),
    (ChatBody, "messages", None),
    (ChatBody, "messages", []),
    (ChatBody, "messages", "hi"),
    (ChatBody, "messages", [1]),
    (ChatBody, "messages", {"role": "user"}),
    (ChatBody, "messages", [{"role": "user"}]),
    (ChatBody, "messages", [{"content": "hi"}]),
    (ChatBody, "messages", [{"role": "robot", "content": "hi"}]),
    (ChatBody, "messages", [{"role": None, "content": "hi"}]),
    (ChatBody, "messages", [{"role": "user", "content": 5}]),
    (ChatBody, "messages", [{"role": "user", "content": None}]),
    (ChatBody, "messages", [{"role": "user", "content": []}]),
    (ChatBody, "messages", [{"role": "user", "content": ["hi"]}]),
    (ChatBody, "messages", [{"role": "user", "content": {"type": "text", "text": "x"}}]),
    (ChatBody, "messages", [{"role": "user", "content": [{"type": "text"}]}]),
    (ChatBody, "messages", [{"role": "user", "content": [{"text": "x"}]}]),
    (ChatBody, "messages", [{"role": "user", "content": [{"type": "text", "text": "x", "more": 1}]}]),
    (ChatBody, "messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
    (ChatBody, "messages", [{"role": "user", "content": "hi", "name": "Ann"}]),
    (ChatBody, "messages", [{"role": "user", "content": "hi", "weight": 1}]),
    (ChatBody, "messages", [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]),
    (ChatBody, "messages", [{"role": "tool", "content": "hi"}]),  # the tiny template refuses it
    (ChatBody, "max_completion_tokens", 0),
    (ChatBody, "max_completion_tokens", "3"),
    (ChatBody, "logprobs", 5),
    (ChatBody, "top_logprobs", 3),  # without logprobs
    (ChatBody, "safety_identifier", 1),
    (ChatBody, "prompt_cache_key", 1),
    (ChatBody, "add_generation_prompt", "no"),
    (ChatBody, "continue_final_message", 1),
    (ChatBody, "chat_template_kwargs", {"messages": []}),
    (ChatBody, "chat_template_kwargs", {"enable_thinking": False}),  # the tiny template reads no such thing
    (ChatBody, "chat_template_kwargs", [1]),
    (ChatBody, "chat_template", "{{ messages }}"),  # the operator has to allow it
    (ChatBody, "tools", "all"),
    (ChatBody, "tools", [{"type": "custom", "custom": {"name": "f"}}]),
    (ChatBody, "tools", [{"type": "function", "function": {"name": "a b"}}]),
    (ChatBody, "tool_choice", "required"),  # without tools
    (ChatBody, "tool_choice", {"type": "function"}),
    (ChatBody, "parallel_tool_calls", 1),
    (ChatBody, "messages", [{"role": "user", "content": "x", "tool_calls": [{"id": "1"}]}]),
]


async def ask(world: World, kind: type[Wire], **fields: Any) -> Answered:
    return await call(world.app, "POST", PATHS[kind], NEEDED[kind] | fields)


async def request_for(kind: type[Wire], **fields: Any) -> Request:
    """What the engine gets."""
    world = make_world(says("ok"))
    answered = await ask(world, kind, **fields)
    assert answered.status == 200, answered.body
    return world.service.submitted[0]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("name", "pair"), [(name, pair) for name, pairs in SAMPLING.items() for pair in pairs])
async def test_a_sampling_field_reaches_the_engine(kind: type[Wire], name: str, pair: tuple[Any, Any]) -> None:
    request = await request_for(kind, **{name: pair[0]})
    assert getattr(request.params, name) == pair[1]


@pytest.mark.parametrize(("kind", "name", "value"), BAD)
async def test_a_bad_value_is_a_400_that_names_the_field(kind: type[Wire], name: str, value: Any) -> None:
    world = make_world()
    answered = await ask(world, kind, **{name: value})
    assert answered.status == 400, answered.body
    error = answered.error
    assert error["type"] == "invalid_request_error"
    assert error["param"].split("[")[0].split(".")[0] == name, error
    assert name in error["message"] or "template" in error["message"] or "sequences" in error["message"], error
    assert len(answered.body) < 1000, "an error must not send the input back"
    assert not world.service.submitted


@pytest.mark.parametrize("kind", BOTH)
async def test_null_is_the_same_as_leaving_a_field_out(kind: type[Wire]) -> None:
    optional = [name for name in kind.model_fields if name not in NEEDED[kind]] + list(UNSERVED[kind])
    without = await request_for(kind, seed=1)
    nulls = await request_for(kind, **(dict.fromkeys(optional) | {"seed": 1}))
    assert (without.prompt, without.max_tokens, without.params) == (nulls.prompt, nulls.max_tokens, nulls.params)


HARMLESS = [(kind, name, value) for kind in BOTH for name, values in UNSERVED[kind].items() for value in values]


@pytest.mark.parametrize(("kind", "name", "value"), HARMLESS)
async def test_an_unserved_field_that_asks_for_nothing_is_accepted(kind: type[Wire], name: str, value: Any) -> None:
    assert (await ask(make_world(), kind, **{name: value})).status == 200


ASKS = [
    (ChatBody, "functions", [{"name": "f"}]),
    (ChatBody, "function_call", {"name": "f"}),
    (ChatBody, "audio", {"voice": "x"}),
    (ChatBody, "modalities", ["text", "audio"]),
    (ChatBody, "prediction", {"type": "content", "content": "x"}),
    (ChatBody, "reasoning_effort", "high"),
    (ChatBody, "verbosity", "low"),
    (ChatBody, "web_search_options", {}),
    (ChatBody, "prompt_cache_retention", "24h"),
    (ChatBody, "store", True),
    (ChatBody, "store", 0),
    (CompletionBody, "store", True),
    (CompletionBody, "suffix", "end"),
    (CompletionBody, "service_tier", "priority"),
]


@pytest.mark.parametrize(("kind", "name", "value"), ASKS)
async def test_an_unserved_field_that_asks_for_something_is_refused_by_name(
    kind: type[Wire], name: str, value: Any
) -> None:
    answered = await ask(make_world(), kind, **{name: value})
    assert answered.status == 400
    assert (answered.error["code"], answered.error["param"]) == ("unsupported_value", name)
    assert name in answered.error["message"]
    assert "null" in answered.error["message"]


def test_every_unserved_field_is_asked_for_above() -> None:
    assert {(kind, name) for kind, name, _ in ASKS} >= {
        (kind, name) for kind in BOTH for name in UNSERVED[kind] if (kind, name) != (ChatBody, "service_tier")
    }


@pytest.mark.parametrize(
    ("kind", "name", "nearest"),
    [
        (ChatBody, "max_token", "max_tokens"),
        (ChatBody, "Temperature", "temperature"),
        (ChatBody, "message", "messages"),
        (CompletionBody, "logit_biases", "logit_bias"),
        (CompletionBody, "messages", None),
        (CompletionBody, "max_completion_tokens", None),
        (ChatBody, "prompt", None),
        (ChatBody, "zzz", None),
        (ChatBody, "", None),
        (ChatBody, "x" * 5000, None),
        (ChatBody, "model_config", None),
        (ChatBody, "__class__", None),
    ],
)
async def test_an_unknown_field_is_refused_with_the_nearest_known_one(
    kind: type[Wire], name: str, nearest: str | None
) -> None:
    answered = await ask(make_world(), kind, **{name: 1})
    assert answered.status == 400
    error = answered.error
    assert error["code"] == "unknown_parameter"
    assert error["param"] == name[:120]
    if nearest:
        assert f"did you mean '{nearest}'" in error["message"]


async def test_an_unknown_nested_field_is_named_with_its_path() -> None:
    answered = await ask(make_world(), ChatBody, stream=True, stream_options={"include_usages": True})
    assert answered.error["param"] == "stream_options.include_usages"
    assert "'include_usage'" in answered.error["message"]
    answered = await ask(make_world(), ChatBody, messages=[{"role": "user", "content": "x", "contents": "y"}])
    assert answered.error["param"] == "messages[0].contents"


@pytest.mark.parametrize("value", ["user-1", ""])
@pytest.mark.parametrize("name", ["user", "safety_identifier", "prompt_cache_key"])
async def test_labels_are_accepted_because_they_ask_for_nothing(name: str, value: str) -> None:
    assert (await request_for(ChatBody, **{name: value}, seed=1)).params == (await request_for(ChatBody, seed=1)).params


async def test_metadata_and_not_storing_are_accepted() -> None:
    for kind in BOTH:
        assert (await ask(make_world(), kind, metadata={"run": "7"}, store=False)).status == 200


@pytest.mark.parametrize("kind", [CompletionBody, ChatBody, TokenizeBody, DetokenizeBody])
def test_every_wire_type_refuses_what_it_does_not_know(kind: type[Wire]) -> None:
    assert kind.model_config["extra"] == "forbid"
    assert kind.model_config["strict"] is True
