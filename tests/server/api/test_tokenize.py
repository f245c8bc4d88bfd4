"""/tokenize gives the ids that a request would run; /detokenize gives their text."""

from typing import Any

import pytest

from tests.helpers.api_world import World, make_world
from tests.helpers.asgi import Answered, call
from tests.helpers.tiny_text import ids_of, piece_id

MESSAGES = [{"role": "user", "content": "hi"}]


async def post(path: str, world: World | None = None, **body: Any) -> Answered:
    return await call((world or make_world()).app, "POST", path, body)


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({"prompt": "hi"}, ids_of(256, "hi")),
        ({"prompt": "hi", "add_special_tokens": True}, ids_of(256, "hi")),
        ({"prompt": "hi", "add_special_tokens": False}, ids_of("hi")),
        ({"prompt": ""}, (256,)),
        ({"prompt": "", "add_special_tokens": False}, ()),
        ({"messages": MESSAGES}, ids_of(256, 258, "user\nhi", 259, 258, "assistant\n")),
        ({"messages": MESSAGES, "add_generation_prompt": False}, ids_of(256, 258, "user\nhi", 259)),
    ],
)
async def test_ids_are_those_that_a_request_would_run(fields: dict[str, Any], ids: tuple[int, ...]) -> None:
    assert (await post("/tokenize", **fields)).json() == {
        "count": len(ids),
        "max_model_len": 200,
        "tokens": list(ids),
    }


async def test_chat_and_tokenize_agree() -> None:
    world = make_world()
    await post("/v1/chat/completions", world, messages=MESSAGES)
    tokens = (await post("/tokenize", world, messages=MESSAGES)).json()["tokens"]
    assert tuple(tokens) == world.service.submitted[0].prompt


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": "a", "messages": MESSAGES}, "prompt"),
        ({"prompt": ["a"]}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": MESSAGES, "add_special_tokens": True}, "add_special_tokens"),
        ({"prompt": "a", "add_generation_prompt": True}, "add_generation_prompt"),
        ({"prompt": "a", "with_pieces": 1}, "with_pieces"),
        ({"prompt": "a", "return_token_strs": True}, "return_token_strs"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    world = make_world()
    answered = await post("/tokenize", world, **fields)
    assert (answered.status, answered.error["param"]) == (400, param)
    assert world.figure("kvell_requests_total", endpoint="tokenize", outcome="refused") == 1


async def test_pieces_say_what_each_token_is_and_where() -> None:
    answered = (await post("/tokenize", prompt="hé", with_pieces=True)).json()
    assert answered["text"] == "hé"
    assert answered["pieces"] == [
        {"id": 256, "piece": "<bos>", "bytes": list(b"<bos>"), "start": 0, "end": 0},
        {"id": 104, "piece": "h", "bytes": [104], "start": 0, "end": 1},
        {"id": 0xC3, "piece": "\ufffd", "bytes": [0xC3], "start": 1, "end": 2},
        {"id": 0xA9, "piece": "\ufffd", "bytes": [0xA9], "start": 2, "end": 3},
    ]


async def test_pieces_of_messages_are_those_of_the_text_that_the_model_sees() -> None:
    answered = (await post("/tokenize", messages=MESSAGES, with_pieces=True)).json()
    assert answered["text"] == "<bos><|turn|>user\nhi<|end|><|turn|>assistant\n"
    source = answered["text"].encode()
    assert all(source[piece["start"] : piece["end"]] == bytes(piece["bytes"]) for piece in answered["pieces"])
    assert answered["pieces"][-1]["end"] == len(source)


async def test_without_being_asked_for_pieces_are_not_there() -> None:
    assert set((await post("/tokenize", prompt="a", with_pieces=False)).json()) == {"count", "max_model_len", "tokens"}


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ([], ""),
        (list(ids_of("hé🎉")), "hé🎉"),
        ([256, *b"a", 257, *b"b"], "ab"),
        ([*"🎉".encode()[:3]], "\ufffd"),
        ([piece_id("Hel"), piece_id("lo")], "Hello"),
    ],
)
async def test_the_text_of_ids(tokens: list[int], text: str) -> None:
    assert (await post("/detokenize", tokens=tokens)).json() == {"prompt": text}


@pytest.mark.parametrize("tokens", [[270], [-1], ["a"], "abc", None, [10**50], [1.0], [True]])
async def test_ids_that_are_none_are_refused(tokens: Any) -> None:
    answered = await post("/detokenize", tokens=tokens)
    assert answered.status == 400
    assert answered.error["param"].startswith("tokens")


async def test_both_answer_while_the_engine_is_loading_or_gone() -> None:
    world = make_world()
    world.service.info, world.service.state = None, "starting"
    assert (await post("/tokenize", world, prompt="a")).json()["max_model_len"] is None
    assert (await post("/detokenize", world, tokens=[97])).status == 200
    assert world.figure("kvell_requests_total", endpoint="detokenize", outcome="ok") == 1


async def test_without_a_template_messages_can_not_be_tokenized() -> None:
    answered = await post("/tokenize", make_world(chats=False), messages=MESSAGES)
    assert answered.error["code"] == "no_chat_template"
