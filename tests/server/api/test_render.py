"""Rendering shows what would be sent to the model, and refuses what the endpoint refuses."""

from typing import Any

import pytest

from tests.helpers.api_world import World, make_world
from tests.helpers.asgi import Answered, call
from tests.helpers.tiny_text import ids_of

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "system", "content": "é"}, {"role": "user", "content": "a <|end|>"}]},
    COMPLETIONS: {"prompt": [[256, 104], [104, 259]], "n": 2},
}


async def rendered(path: str, world: World | None = None, **fields: Any) -> Answered:
    return await call((world or make_world()).app, "POST", path + "/render", BODIES[path] | fields)


async def test_a_chat_renders_to_the_template_s_text_and_its_ids() -> None:
    body = (await rendered(CHAT, max_tokens=7)).json()
    assert (body["object"], body["model"]) == ("render", "tiny")
    (prompt,) = body["prompts"]
    # the special token that the user typed is text: spelled out, byte by byte
    assert prompt["tokens"] == list(ids_of(256, 258, "system\né", 259, 258, "user\na <|end|>", 259, 258, "assistant\n"))
    assert prompt["text"] == ("<bos><|turn|>system\né<|end|><|turn|>user\na <|end|><|end|><|turn|>assistant\n")
    assert (prompt["count"], prompt["max_tokens"]) == (len(prompt["tokens"]), 7)


async def test_each_prompt_renders_once_whatever_n_is() -> None:
    body = (await rendered(COMPLETIONS)).json()
    assert body["prompts"] == [
        {"text": "<bos>h", "tokens": [256, 104], "count": 2, "max_tokens": 16},
        {"text": "h<|end|>", "tokens": [104, 259], "count": 2, "max_tokens": 16},
    ]


@pytest.mark.parametrize("path", BODIES)
async def test_what_is_rendered_is_what_the_engine_gets_and_nothing_is_generated(path: str) -> None:
    world = make_world()
    prompts = (await rendered(path, world)).json()["prompts"]
    assert not world.service.submitted
    assert world.figure("kvell_requests_total", endpoint="render", outcome="ok") == 1
    await call(world.app, "POST", path, BODIES[path])
    sent = world.service.submitted[:: BODIES[path].get("n", 1)]
    assert [(p["tokens"], p["max_tokens"]) for p in prompts] == [(list(r.prompt), r.max_tokens) for r in sent]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "fields", [{"temperature": 9}, {"maxtokens": 1}, {"max_tokens": 10**6}, {"model": "huge"}, {"n": 17}]
)
async def test_what_the_endpoint_refuses_is_refused_here_in_the_same_words(path: str, fields: dict[str, Any]) -> None:
    there = await call(make_world().app, "POST", path, BODIES[path] | fields)
    here = await rendered(path, **fields)
    assert here.status >= 400
    assert (here.status, here.error) == (there.status, there.error)
