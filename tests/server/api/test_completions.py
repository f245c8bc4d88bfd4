"""POST /v1/completions: the four forms of a prompt, echo, and the wording."""

import pytest

from tests.helpers.api_world import make_world, says
from tests.helpers.asgi import call
from tests.helpers.tiny_text import TinyTokenizer, ids_of

PATH = "/v1/completions"


async def test_the_answer_has_openai_s_shape() -> None:
    world = make_world(says("Hello", cached=2))
    answered = await call(world.app, "POST", PATH, {"model": "tiny", "prompt": "Say hi", "max_tokens": 9})
    assert answered.status == 200
    assert answered.headers["content-type"] == "application/json"
    assert answered.headers["cache-control"] == "no-store"
    body = answered.json()
    assert body.pop("id").startswith("cmpl-")
    assert isinstance(body.pop("created"), int)
    assert body.pop("kvell")["ended_by"] == "stop_token"
    assert body == {
        "object": "text_completion",
        "model": "tiny",
        "choices": [{"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 6,
            "total_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 2},
        },
    }


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("ab", [(256, 97, 98)]),
        (["ab", "c"], [(256, 97, 98), (256, 99)]),
        ([97, 98], [(97, 98)]),
        ([[97], [98, 99]], [(97,), (98, 99)]),
        ("<eos>", [ids_of(256, "<eos>")]),
        ("", [(256,)]),
        ([""], [(256,)]),
        ([[]], [(256,)]),
        (["", "a"], [(256,), (256, 97)]),
        ("\u0000 é🎉\r\n", [ids_of(256, "\u0000 é🎉\r\n")]),
    ],
)
async def test_every_form_of_a_prompt_becomes_ids(prompt: object, ids: list[tuple[int, ...]]) -> None:
    world = make_world()
    answered = await call(world.app, "POST", PATH, {"prompt": prompt})
    assert answered.status == 200
    assert [request.prompt for request in world.service.submitted] == ids


async def test_an_empty_prompt_begins_with_bos_even_where_prompts_usually_do_not() -> None:
    world = make_world(tokenizer=TinyTokenizer(adds_bos=False))
    assert (await call(world.app, "POST", PATH, {"prompt": ""})).status == 200
    assert world.service.submitted[0].prompt == (256,)


@pytest.mark.parametrize("prompt", ["", [[]], ["a", ""]])
async def test_without_a_bos_token_an_empty_prompt_is_refused(prompt: object) -> None:
    world = make_world(tokenizer=TinyTokenizer(bos_id=None))
    answered = await call(world.app, "POST", PATH, {"prompt": prompt})
    assert answered.status == 400
    assert answered.error["param"] == "prompt"


async def test_echo_puts_the_prompt_before_the_answer_without_loss() -> None:
    prompt = "👩‍👩‍👧‍👦 东京\n<eos>"
    body = {"prompt": prompt, "echo": True}
    assert (await call(make_world().app, "POST", PATH, body)).json()["choices"][0]["text"] == prompt + "Hello"
    streamed = await call(make_world().app, "POST", PATH, body | {"stream": True})
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed.chunks()) == prompt + "Hello"


async def test_echo_of_ids_is_their_text_and_belongs_to_each_choice() -> None:
    body = {"prompt": [[*"é".encode()], [*b"b"]], "echo": True, "n": 2}
    for stream in (False, True):
        answered = await call(make_world().app, "POST", PATH, body | {"stream": stream})
        chunks = answered.chunks() if stream else [answered.json()]
        texts = ["", "", "", ""]
        for chunk in chunks:
            for choice in chunk["choices"]:
                texts[choice["index"]] += choice["text"]
        assert texts == ["éHello", "éHello", "bHello", "bHello"]


async def test_a_stop_string_in_the_echoed_prompt_ends_nothing() -> None:
    answered = await call(make_world().app, "POST", PATH, {"prompt": "xyz", "echo": True, "stop": "y"})
    assert answered.json()["choices"][0]["text"] == "xyzHello"


async def test_completions_need_no_chat_template() -> None:
    assert (await call(make_world(chats=False).app, "POST", PATH, {"prompt": "x"})).status == 200
