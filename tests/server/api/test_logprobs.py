"""Log-probabilities on both endpoints: for exactly the tokens of the text, in OpenAI's two shapes."""

from typing import Any

import pytest

from server.api.choices import ScoredToken
from server.api.logprobs import chat_logprobs, completion_logprobs, token_text
from server.engine.request import TokenLogprob
from tests.helpers.api_world import make_world, says
from tests.helpers.asgi import call
from tests.helpers.tiny_text import TinyTokenizer, piece_id

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


async def chat(**fields: Any) -> Any:
    return (await call(make_world(says("aé")).app, "POST", CHAT, {"messages": MESSAGES} | fields)).json()


async def test_chat_has_an_entry_per_token_and_none_for_the_end_token() -> None:
    choice = (await chat(logprobs=True, top_logprobs=2))["choices"][0]
    content = choice["logprobs"]["content"]
    assert choice["logprobs"]["refusal"] is None
    assert [entry["bytes"] for entry in content] == [[0x61], [0xC3], [0xA9]]
    assert bytes(b for entry in content for b in entry["bytes"]).decode() == choice["message"]["content"]
    assert content[0] == {
        "token": "a",
        "logprob": -0.097,
        "bytes": [97],
        "top_logprobs": [
            {"token": "a", "logprob": -0.097, "bytes": [97]},
            {"token": "b", "logprob": -0.098, "bytes": [98]},
        ],
    }


@pytest.mark.parametrize("fields", [{}, {"top_logprobs": 0}, {"top_logprobs": None}])
async def test_without_alternatives_only_the_chosen_token_is_scored(fields: dict[str, Any]) -> None:
    content = (await chat(logprobs=True, **fields))["choices"][0]["logprobs"]["content"]
    assert [entry["top_logprobs"] for entry in content] == [[], [], []]


@pytest.mark.parametrize("fields", [{}, {"logprobs": False}, {"logprobs": None}])
async def test_logprobs_are_null_unless_asked_for(fields: dict[str, Any]) -> None:
    assert (await chat(**fields))["choices"][0]["logprobs"] is None


async def test_streamed_entries_joined_are_the_whole_ones() -> None:
    fields = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 1, "stop": "w"}
    play = says("Hé", piece_id("lo"), piece_id(" wor"), piece_id("ld"), per_step=2)
    whole = (await call(make_world(play).app, "POST", CHAT, fields)).json()["choices"][0]
    streamed = (await call(make_world(play).app, "POST", CHAT, fields | {"stream": True})).chunks()
    parts = [chunk["choices"][0] for chunk in streamed]
    joined = [entry for part in parts if part["logprobs"] for entry in part["logprobs"]["content"]]
    assert joined == whole["logprobs"]["content"]
    assert "".join(part["delta"].get("content", "") for part in parts) == whole["message"]["content"] == "Hélo "
    assert joined[-1]["token"] == " wor"
    assert parts[-1]["logprobs"] is None


async def test_completions_have_parallel_lists_with_offsets_into_the_text() -> None:
    play = says("a", piece_id("lo"), "é")
    body = {"prompt": "x", "logprobs": 2}
    choice = (await call(make_world(play).app, "POST", COMPLETIONS, body)).json()["choices"][0]
    found = choice["logprobs"]
    assert choice["text"] == "aloé"
    assert found["tokens"] == ["a", "lo", "\ufffd", "\ufffd"]
    assert found["text_offset"] == [0, 1, 3, 3]
    assert found["token_logprobs"] == [-0.097, -0.261, -0.195, -0.169]
    assert found["top_logprobs"][:2] == [{"a": -0.097, "b": -0.098}, {"lo": -0.261, "Hel": -0.262}]


async def test_streamed_offsets_go_on_over_the_chunks() -> None:
    play = says("a", piece_id("lo"), "b")
    body = {"prompt": "x", "logprobs": 0, "stream": True}
    chunks = (await call(make_world(play).app, "POST", COMPLETIONS, body)).chunks()
    found = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [each["text_offset"] for each in found if each] == [[0], [1], [3]]


async def test_zero_on_completions_scores_the_chosen_token_only() -> None:
    body = {"prompt": "x", "logprobs": 0}
    found = (await call(make_world(says("a")).app, "POST", COMPLETIONS, body)).json()["choices"][0]["logprobs"]
    assert found["top_logprobs"] == [{"a": -0.097}]


def test_the_chosen_token_stands_beside_the_best_ones_when_it_is_not_among_them() -> None:
    entry = ScoredToken(97, TokenLogprob(-3.0, (98, 99), (-0.5, -1.0)), 0)
    assert completion_logprobs(TinyTokenizer(), [entry])["top_logprobs"] == [{"b": -0.5, "c": -1.0, "a": -3.0}]
    chat_entry: Any = chat_logprobs(TinyTokenizer(), [entry])["content"]
    assert [top["token"] for top in chat_entry[0]["top_logprobs"]] == ["b", "c"]


def test_of_alternatives_with_equal_text_the_best_counts() -> None:
    entry = ScoredToken(97, TokenLogprob(-0.1, (0xE9, 0xEA), (-0.5, -1.0)), 0)  # both are U+FFFD by themselves
    assert completion_logprobs(TinyTokenizer(), [entry])["top_logprobs"] == [{"\ufffd": -0.5, "a": -0.1}]


def test_a_special_token_is_shown_by_its_name() -> None:
    assert token_text(TinyTokenizer(), 257) == ("<eos>", b"<eos>")
    assert token_text(TinyTokenizer(), 0xE9) == ("\ufffd", b"\xe9")
