"""Receipts and replays: what goes in comes out again, and nothing in a receipt is trusted."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import pytest
from msgspec import structs

from server.engine.request import Request, TokenEvent
from tests.helpers.api_world import READY, Step, World, make_world, says
from tests.helpers.asgi import Answered, call
from tests.helpers.tiny_text import ids_of

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PROMPTS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    COMPLETIONS: {"prompt": ["hi", "you"]},
}


async def receipt_of(world: World, path: str = COMPLETIONS, **fields: Any) -> Any:
    answered = await call(world.app, "POST", path, PROMPTS[path] | {"kvell_receipt": True} | fields)
    assert answered.status == 200, answered.body
    bodies = answered.chunks() if fields.get("stream") else [answered.json()]
    return bodies[-1]["kvell"]["receipt"]


async def replay(world: World, receipt: Any) -> Answered:
    return await call(world.app, "POST", "/v1/replay", {"receipt": receipt})


RICH: list[dict[str, Any]] = [
    {},
    {"n": 2, "temperature": 0.7, "seed": 5, "stop": ["l"], "repetition_penalty": 1.2},
    {"max_tokens": 3, "return_token_ids": True, "prompt_logprobs": 1},
    {"logit_bias": {"5": 1.5}, "bad_words": ["x"], "dry_multiplier": 0.5, "include_stop_str_in_output": True},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}},
    {"stop_token_ids": [7], "ignore_eos": True, "min_tokens": 2, "truncate_prompt_tokens": 2},
]


@pytest.mark.parametrize("fields", RICH)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_replay_asks_the_engine_for_the_same_and_answers_with_the_same(
    path: str, fields: dict[str, Any], stream: bool
) -> None:
    world = make_world(says("Hello"))
    receipt = await receipt_of(world, path, stream=stream, **fields)
    asked, world.service.submitted = world.service.submitted, []
    answered = await replay(world, receipt)
    assert answered.status == 200, answered.body
    for before, again in zip(asked, world.service.submitted, strict=True):
        assert (again.prompt, again.max_tokens, again.params) == (before.prompt, before.max_tokens, before.params)
        assert (again.constraint, again.prompt_logprobs) == (before.constraint, before.prompt_logprobs)
    assert answered.json()["same"] is True
    assert answered.json()["object"] == "replay"


@pytest.mark.parametrize(
    "fields", [{"echo": True, "logprobs": 2}, {"best_of": 3, "n": 1}, {"echo": True, "max_tokens": 0}]
)
async def test_what_only_completions_have_is_replayed_too(fields: dict[str, Any]) -> None:
    world = make_world(says("Hello"))
    whole = (await call(world.app, "POST", COMPLETIONS, PROMPTS[COMPLETIONS] | {"kvell_receipt": True} | fields)).json()
    again = (await replay(world, whole["kvell"]["receipt"])).json()
    assert again["choices"] == whole["choices"]
    assert again["same"] is True


async def test_other_choices_are_told_apart() -> None:
    receipt = await receipt_of(make_world(says("Hello")))
    assert (await replay(make_world(says("Hullo")), receipt)).json()["same"] is False


async def test_what_a_default_or_chance_decided_is_in_the_receipt() -> None:
    receipt = await receipt_of(make_world(), CHAT)
    assert receipt["request"] | {"seed": 0} == PROMPTS[CHAT] | {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "seed": 0,
    }
    assert receipt["max_tokens"] == [200 - len(receipt["prompt_token_ids"][0])]


async def test_a_prompt_that_would_be_rendered_otherwise_today_is_taken_from_the_receipt() -> None:
    world = make_world()
    receipt = await receipt_of(world, CHAT)
    receipt["prompt_token_ids"] = [list(ids_of("yesterday"))]
    world.service.submitted.clear()
    await replay(world, receipt)
    assert world.service.submitted[0].prompt == ids_of("yesterday")


async def test_what_a_deadline_cut_is_cut_at_the_same_token_again() -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(requests[0].id, ids_of("ab"))]
        yield [TokenEvent(requests[0].id, finish="length", ended_by="deadline")]
        yield [TokenEvent(requests[1].id, ids_of("abcde"), finish="length")]

    receipt = await receipt_of(make_world(play), max_tokens=5, timeout_ms=10)
    assert receipt["max_tokens"] == [2, 5]
    world = make_world(says("abcde", finish="length"))
    assert (await replay(world, receipt)).json()["same"] is True
    assert [(request.max_tokens, request.deadline) for request in world.service.submitted] == [(2, None), (5, None)]


async def test_without_being_asked_there_is_no_receipt() -> None:
    world = make_world()
    assert "receipt" not in (await call(world.app, "POST", COMPLETIONS, {"prompt": "hi"})).json()["kvell"]


@pytest.mark.parametrize("name", ["model_digest", "backend", "kernels", "kernels_version", "quantization", "dtype"])
async def test_another_model_and_other_kernels_are_refused_with_both_names(name: str) -> None:
    world = make_world()
    receipt = await receipt_of(world)
    mine, receipt[name] = receipt[name], "another"
    answered = await replay(world, receipt)
    assert (answered.status, answered.error["code"]) == (400, "cannot_replay")
    assert answered.error["param"] == f"receipt.{name}"
    assert repr(mine) in answered.error["message"]
    assert "'another'" in answered.error["message"]


KINDS = {
    **{"backend": "native", "kernels": "avx2", "kernels_version": "f00d", "quantization": "int8"},
    **{"dtype": "bfloat16", "kv_cache_dtype": "int8"},
}


@pytest.mark.parametrize("name", KINDS)
async def test_whatever_differs_in_how_it_is_computed_is_noticed(name: str) -> None:
    receipt = await receipt_of(make_world())
    other = make_world()
    other.service.info = structs.replace(READY, **{name: KINDS[name]})
    answered = await replay(other, receipt)
    assert (answered.status, answered.error["param"]) == (400, f"receipt.{name}")


async def test_another_tokenizer_is_another_model() -> None:
    receipt = await receipt_of(make_world())
    other = make_world(digest="another")
    answered = await replay(other, receipt)
    assert (answered.status, answered.error["param"]) == (400, "receipt.model_digest")


SPOILT: list[tuple[list[str], Any]] = [
    (["version"], 2),
    (["endpoint"], "tokenize"),
    (["prompt_token_ids"], [[1]]),
    (["prompt_token_ids"], [[1], [270]]),
    (["prompt_token_ids"], [[1], []]),
    (["prompt_token_ids"], "ids"),
    (["max_tokens"], [1]),
    (["max_tokens"], [1, -1]),
    (["max_tokens"], [1, 10**6]),
    (["max_tokens"], [1, 2**40]),
    (["choices_sha256"], "x"),
    (["request"], []),
    (["request", "temperature"], 5),
    (["request", "prompt"], ["only one"]),
    (["request", "unknown"], 1),
    (["request", "stream"], True),
    (["request", "n"], 500),
    (["request", "stream_options"], {"include_usage": True}),
    (["request", "model"], "another"),
    (["more"], 1),
]


@pytest.mark.parametrize(("path", "value"), SPOILT, ids=str)
async def test_a_spoilt_receipt_is_the_user_s_error(path: list[str], value: Any) -> None:
    world = make_world()
    receipt = deepcopy(await receipt_of(world))
    world.service.submitted.clear()
    place = receipt
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    answered = await replay(world, receipt)
    assert 400 <= answered.status < 500, answered.body
    assert answered.error["type"] == "invalid_request_error"
    assert not world.service.submitted


async def test_no_part_of_a_receipt_can_be_missing() -> None:
    world = make_world()
    receipt = await receipt_of(world)
    for name in receipt:
        answered = await replay(world, {k: v for k, v in receipt.items() if k != name})
        assert (answered.status, answered.error["param"]) == (400, f"receipt.{name}")
