"""/v1/messages: Anthropic's own types read every answer, event and error; what can't be served is refused."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from pydantic import TypeAdapter

from server.api.types import UNSERVED, CountTokensBody, MessagesBody
from server.engine.errors import Draining, EngineUnavailable
from server.engine.request import Request
from tests.helpers.api_world import Step, World, events_of, make_world, roomy, says
from tests.helpers.asgi import Answered, Call, call
from tests.helpers.tiny_text import ids_of, piece_id

PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
NEEDED: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}


async def ask(world: World | None = None, **fields: Any) -> Answered:
    return await call((world or make_world(says("Hello"))).app, "POST", PATH, NEEDED | fields)


async def message(world: World | None = None, **fields: Any) -> Message:
    answered = await ask(world, **fields)
    assert answered.status == 200, answered.body
    return Message.model_validate(answered.json(), strict=True)


async def events(world: World | None = None, **fields: Any) -> list[dict[str, Any]]:
    answered = await ask(world, stream=True, **fields)
    found = answered.named_events()
    for event in found:
        if event["type"] != "error":
            EVENT.validate_python(event)
    return found


async def sent(**fields: Any) -> Request:
    """What the engine gets."""
    world = make_world(says("ok"))
    await message(world, **fields)
    return world.service.submitted[0]


def user(*content: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def refusal(answered: Answered) -> tuple[int, str, str]:
    error = ErrorResponse.model_validate(answered.json(), strict=True).error
    return answered.status, error.type, error.message


async def test_a_whole_answer_is_a_message() -> None:
    said = await message()
    assert (said.id[:4], said.type, said.role, said.model) == ("msg_", "message", "assistant", "tiny")
    assert [block.text for block in said.content if block.type == "text"] == ["Hello"]
    assert (said.stop_reason, said.stop_sequence) == ("end_turn", None)
    assert said.usage.output_tokens == 6


async def test_cached_tokens_are_counted_apart() -> None:
    usage = (await message(make_world(says("a", cached=8)))).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (13, 8)


@pytest.mark.parametrize(
    ("fields", "text", "reason", "stop"),
    [
        ({"max_tokens": 2}, "He", "max_tokens", None),
        ({"stop_sequences": ["lo"]}, "Hel", "stop_sequence", "lo"),
        ({"stop_sequences": ["x", "ell", "l"]}, "He", "stop_sequence", "l"),
        ({"stop_sequences": []}, "Hello", "end_turn", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_it_says_why_it_ended(
    fields: dict[str, Any], text: str, reason: str, stop: str | None, stream: bool
) -> None:
    if stream:
        found = await events(**fields)
        said = "".join(event["delta"]["text"] for event in found if event["type"] == "content_block_delta")
        ended = found[-2]["delta"]
    else:
        whole = (await ask(**fields)).json()
        said, ended = whole["content"][0]["text"], whole
    assert said == text
    assert (ended["stop_reason"], ended["stop_sequence"]) == (reason, stop)


async def test_a_stream_has_anthropic_s_events_in_order() -> None:
    kinds = [event["type"] for event in await events(make_world(says("ab")))]
    assert kinds == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "message_delta", "message_stop"),
    ]


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 2}, {"stop_sequences": ["lo"]}])
async def test_the_stream_is_the_answer(fields: dict[str, Any]) -> None:
    play = says("é🎉", piece_id("lo"), "x", cached=3)
    whole = (await ask(make_world(play), seed=1, **fields)).json()
    found = await events(make_world(play), seed=1, **fields)
    joined = found[0]["message"] | found[-2]["delta"] | {"kvell": found[-2]["kvell"]}
    text = "".join(event["delta"]["text"] for event in found if event["type"] == "content_block_delta")
    joined |= {"content": [{"type": "text", "text": text}], "usage": found[-2]["usage"], "id": whole["id"]}
    assert joined == whole


async def test_an_answer_without_text_has_one_empty_block_streamed_or_not() -> None:
    assert (await ask(make_world(says("")))).json()["content"] == [{"type": "text", "text": ""}]
    kinds = [event["type"] for event in await events(make_world(says("")))]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 1


async def test_messages_become_a_chat() -> None:
    request = await sent(
        system=[text("Be "), text("kind.") | {"cache_control": {"type": "ephemeral"}}],
        messages=[
            *user(text("a"), text("b")),
            {"role": "assistant", "content": "c"},
            *user({"type": "tool_result", "tool_use_id": "t", "content": "d", "is_error": True}),
            {"role": "user", "content": "e"},
        ],
    )
    brought = "<tool_response>\nError: d\n</tool_response>"
    turns = (("system", "Be kind."), ("user", "ab"), ("assistant", "c"), ("user", brought), ("user", "e"))
    parts = [part for role, text in turns for part in (258, f"{role}\n{text}", 259)]
    assert request.prompt == ids_of(256, *parts, 258, "assistant\n")


CALLED = {"type": "tool_use", "id": "t", "name": "f", "input": {}}


@pytest.mark.parametrize(
    "content", ["So, <|end|>", [{"type": "text", "text": "So, "}, {"type": "text", "text": "<|end|>"}]]
)
async def test_a_last_message_of_the_assistant_goes_on(content: Any) -> None:
    turns = [*NEEDED["messages"], {"role": "assistant", "content": content}]
    opened = ids_of(256, 258, "user\nhi", 259, 258, "assistant\nSo, ", "<|end|>")
    assert (await sent(messages=turns)).prompt == opened
    counted = await call(make_world().app, "POST", COUNT, {"messages": turns})
    assert counted.json() == {"input_tokens": len(opened)}
    said = await message(messages=turns)
    assert [block.text for block in said.content if block.type == "text"] == ["Hello"], (
        "and what it had said is left out"
    )


EFFECTS: dict[str, tuple[Any, str, Any]] = {
    "temperature": (0.5, "temperature", 0.5),
    "top_p": (0.25, "top_p", 0.25),
    "top_k": (3, "top_k", 3),
    "min_p": (0.5, "min_p", 0.5),
    "seed": (7, "seed", 7),
    "ignore_eos": (True, "stop_token_ids", ()),
}
ELSEWHERE = {
    *("model", "messages", "system", "max_tokens", "stop_sequences", "stream", "metadata", "cache_control"),
    *("tools", "tool_choice", "output_config"),
}


@pytest.mark.parametrize("name", EFFECTS)
async def test_a_field_reaches_the_engine(name: str) -> None:
    value, param, becomes = EFFECTS[name]
    assert getattr((await sent(**{name: value})).params, param) == becomes
    assert getattr((await sent()).params, param) != becomes


def test_no_field_is_without_a_test() -> None:
    assert set(MessagesBody.model_fields) == set(EFFECTS) | ELSEWHERE


async def test_the_length_is_the_one_asked_for_and_must_be_given() -> None:
    assert (await sent(max_tokens=7)).max_tokens == 7
    assert refusal(await ask(max_tokens=None)) == (
        400,
        "invalid_request_error",
        "max_tokens: Input should be a valid integer; got null",
    )


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
        ({"messages": user()}, "messages[0].content"),
        ({"messages": user({"type": "image", "source": {}})}, "messages[0].content[0]"),
        ({"messages": user({"type": "text"})}, "messages[0].content[0].text"),
        ({"messages": user({"type": "text", "text": "a", "x": 1})}, "messages[0].content[0].x"),
        ({"messages": user({"type": "tool_use", "id": "t", "name": "f", "input": {}})}, "messages[0].content[0]"),
        ({"messages": [*NEEDED["messages"], {"role": "assistant", "content": [CALLED]}]}, "messages[1].tool_calls"),
        ({"system": 5}, "system"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1000}, "context"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"stop_sequences": ["a"] * 17}, "stop_sequences"),
        ({"temperature": 3}, "temperature"),
        ({"metadata": {"user": "x"}}, "metadata.user"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"tool_choice": {"type": "auto", "name": "f"}}, "tool_choice"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"container": "x"}, "container"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"n": 2}, "n"),
    ],
)
async def test_what_is_not_served_is_refused_by_name_in_anthropic_s_shape(fields: dict[str, Any], names: str) -> None:
    world = make_world()
    status, kind, said = refusal(await ask(world, **fields))
    assert (status, kind) == (400, "invalid_request_error")
    assert names in said
    assert not world.service.submitted


HARMLESS = [(name, value) for name, values in UNSERVED[MessagesBody].items() for value in (None, *values)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *HARMLESS,
        ("tools", []),
        ("metadata", {"user_id": "ann"}),
        ("cache_control", {"type": "ephemeral", "ttl": "1h"}),
        ("system", ""),
    ],
)
async def test_what_asks_for_nothing_is_accepted(name: str, value: Any) -> None:
    asked, plain = await sent(seed=1, **{name: value}), await sent(seed=1)
    assert (asked.max_tokens, asked.params) == (plain.max_tokens, plain.params)
    if name != "system":
        assert asked.prompt == plain.prompt


async def test_null_is_the_same_as_leaving_a_field_out() -> None:
    nulls = dict.fromkeys(name for name in MessagesBody.model_fields if name not in (*NEEDED, "seed"))
    asked, plain = await sent(seed=1, **nulls), await sent(seed=1)
    assert (asked.prompt, asked.max_tokens, asked.params) == (plain.prompt, plain.max_tokens, plain.params)


TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'


@pytest.mark.parametrize("per_step", [1, 4, 1000])
@pytest.mark.parametrize("said", ["See:\n" + CALL + "\n" + CALL, CALL, "None."])
async def test_calls_are_blocks_and_the_stream_is_the_answer(said: str, per_step: int) -> None:
    play = says(said, per_step=per_step)
    fields: dict[str, Any] = {"tools": [TOOL], "seed": 3, "max_tokens": 500}
    whole = await message(roomy(play), **fields)
    found = await events(roomy(play), **fields)
    text, calls = said.partition("<tool_call>")[0].strip(), said.count(CALL)
    assert [block.type for block in whole.content] == ["text"] * bool(text) + ["tool_use"] * calls
    assert whole.stop_reason == ("tool_use" if calls else "end_turn") == found[-2]["delta"]["stop_reason"]
    blocks: list[dict[str, Any]] = []
    for event in found:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"] | {"json": ""})
        elif event["type"] == "content_block_delta":
            assert event["index"] == len(blocks) - 1
            blocks[-1]["text"] = blocks[-1].get("text", "") + event["delta"].get("text", "")
            blocks[-1]["json"] += event["delta"].get("partial_json", "")
    for block, entry in zip(blocks, whole.content, strict=True):
        if entry.type == "tool_use":
            assert (block["id"], block["name"], json.loads(block["json"])) == (entry.id, entry.name, entry.input)
            assert entry.input == {"city": "Ulm"}
        else:
            assert block["text"] == text


async def test_a_call_that_the_limit_cuts_says_so() -> None:
    said = await message(roomy(says("Yes. " + CALL)), tools=[TOOL], max_tokens=60)
    assert said.stop_reason == "max_tokens"
    assert said.content[1].input == {"_unfinished": '{"city": "'}  # type: ignore[union-attr]


async def test_the_kvell_object_tells_how_it_came_about() -> None:
    assert (await ask(seed=5)).json()["kvell"]["seed"] == 5
    assert (await events(seed=5))[-2]["kvell"]["ended_by"] == "stop_token"


async def test_faults_of_schemas_are_told_by_this_api_s_names() -> None:
    bad: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "no such"}}}
    answered = await ask(roomy(says("x")), tools=[TOOL | {"input_schema": bad}], tool_choice={"type": "any"})
    assert refusal(answered)[2].startswith("tools[0].input_schema.properties.a: ")
    answered = await ask(output_config={"format": {"type": "json_schema", "schema": bad}})
    assert refusal(answered)[2].startswith("output_config.format.schema")


async def test_counting_counts_tools_too() -> None:
    asked: dict[str, Any] = {"messages": NEEDED["messages"], "tools": [TOOL]}
    counted = (await call(make_world().app, "POST", COUNT, asked)).json()["input_tokens"]
    world = roomy(says("x"))
    await message(world, tools=[TOOL])
    assert counted == len(world.service.submitted[0].prompt) > 100


async def test_all_failures_on_these_paths_have_anthropic_s_shape() -> None:
    world = make_world(keys=("sesame",))
    assert refusal(await call(world.app, "POST", PATH, NEEDED))[:2] == (401, "authentication_error")
    assert (await call(world.app, "POST", PATH, NEEDED, x_api_key="sesame")).status == 200
    assert refusal(await ask(model="huge"))[:2] == (404, "not_found_error")
    assert refusal(await call(make_world().app, "GET", PATH))[:2] == (405, "invalid_request_error")
    assert refusal(await call(make_world().app, "POST", f"{PATH}/batches"))[:2] == (400, "invalid_request_error")
    world = make_world()
    world.service.refuse = Draining("going")
    answered = await ask(world)
    assert refusal(answered) == (503, "overloaded_error", "going")


async def test_a_bug_is_an_api_error(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world()
    monkeypatch.setattr(world.service, "submit", lambda requests, visitor: 1 / 0)
    under_way = Call(world.app, "POST", PATH, [json.dumps(NEEDED).encode()])
    with pytest.raises(ZeroDivisionError):
        await under_way.task
    assert refusal(under_way.answered)[:2] == (500, "api_error")


async def test_a_failure_in_the_middle_is_an_error_event() -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield events_of(requests[0], ids_of("ab"))[0]
        yield EngineUnavailable("killed")

    last = (await events(make_world(play)))[-1]
    assert last == {"type": "error", "error": {"type": "overloaded_error", "message": "killed"}}


async def test_counting_is_what_the_request_then_uses() -> None:
    asked = {"system": "Be kind.", "messages": [*NEEDED["messages"], {"role": "assistant", "content": "So"}] * 2}
    asked["messages"] = [*asked["messages"], {"role": "user", "content": "é"}]  # type: ignore[misc]
    counted = await call(make_world().app, "POST", COUNT, asked)
    count = MessageTokensCount.model_validate(counted.json(), strict=True).input_tokens
    assert count == (await message(**asked)).usage.input_tokens


async def test_counting_refuses_what_is_no_part_of_a_prompt_and_works_before_the_engine_has_loaded() -> None:
    assert refusal(await call(make_world().app, "POST", COUNT, NEEDED))[2].startswith("Unknown parameter: 'max_tokens'")
    assert refusal(await call(make_world().app, "POST", COUNT, {"messages": [], "model": "tiny"}))[0] == 400
    world = make_world()
    world.service.info = None
    messages = NEEDED["messages"]
    assert (await call(world.app, "POST", COUNT, {"messages": messages})).status == 200
    assert world.figure("kvell_requests_total", endpoint="count_tokens", outcome="ok") == 1
    for name, values in UNSERVED[CountTokensBody].items():
        for value in values:
            assert (await call(world.app, "POST", COUNT, {"messages": messages, name: value})).status == 200
