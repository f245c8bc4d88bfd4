"""Faults that servers of this kind really had, on real words: framing, characters, stop strings, templates, tokens."""

import math
import re
from typing import Any

import pytest

from tests.helpers.asking import CHAT, COMPLETIONS, chat, complete, finish_of, same_but_for_ties, usage_of
from tests.helpers.live_server import Got, LiveServer, at_once

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

COUNTING = "one two three four five " * 6 + "one two"
PLAIN = ["The capital of France is", COUNTING, "def add(a, b):\n    return", "Water boils at a temperature of"]
ZWJ = "👩‍👩‍👧‍👦 family " * 5
NOT_ASCII = ["🎉🚀🌍 " * 8, "東京 大阪 京都 " * 8, ZWJ]
CONTROL = re.compile(r"<\|\w+\|>|</?s>|<(?:start|end)_of_turn>")


@pytest.fixture(scope="module")
def story(smollm: LiveServer) -> tuple[str, str]:
    """A prompt and what the model says to it, long enough to cut stop strings from."""
    prompt = "Once upon a time, in a small village by the sea, there"
    text = complete(smollm, prompt, max_tokens=32).text()
    assert len(text) > 60
    return prompt, text


# streams


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_stream_is_well_formed_and_says_what_the_plain_answer_says(smollm: LiveServer, path: str) -> None:
    ask = chat if path == CHAT else complete
    plain = ask(smollm, "Name a colour.")
    streamed = ask(smollm, "Name a colour.", stream=True, stream_options={"include_usage": True})
    *chunks, done = streamed.events()
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["model"], chunk["created"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[-1]["choices"] == []
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert len(chunks) > 5
    assert finish_of(streamed) == finish_of(plain)
    assert same_but_for_ties(smollm, "Name a colour.", streamed.text(), plain.text())
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage_of(streamed)[name] == usage_of(plain)[name]


def test_the_role_comes_once_and_first(smollm: LiveServer) -> None:
    *chunks, _ = chat(smollm, "Count from one to five.", stream=True).events()
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert deltas[0]["role"] == "assistant"
    assert not any("role" in delta for delta in deltas[1:])


@pytest.mark.parametrize("prompt", PLAIN)
def test_streamed_pieces_join_to_the_plain_text(smollm: LiveServer, prompt: str) -> None:
    plain, streamed = complete(smollm, prompt), complete(smollm, prompt, stream=True)
    assert same_but_for_ties(smollm, prompt, plain.text(), streamed.text())
    assert finish_of(plain) == finish_of(streamed)


# characters


@pytest.mark.parametrize("prompt", NOT_ASCII)
def test_characters_of_several_tokens_arrive_whole(smollm: LiveServer, prompt: str) -> None:
    streamed = complete(smollm, prompt, max_tokens=20, stream=True, echo=True)
    pieces = [chunk["choices"][0]["text"] for chunk in streamed.events()[:-1]]
    assert pieces[0] == prompt
    assert "\ufffd" not in "".join(pieces).rstrip("\ufffd")
    assert all("\ufffd" not in piece for piece in pieces[:-2])
    if prompt != ZWJ:  # after families the model goes on in English
        assert any(ord(character) > 127 for character in "".join(pieces[1:])), "the model wrote no such character"


def test_the_space_before_the_first_word_is_kept(smollm: LiveServer) -> None:
    said = complete(smollm, COUNTING, max_tokens=6).text()
    assert said == " three four five one two three"
    assert complete(smollm, COUNTING, max_tokens=6, stream=True).text() == said
    assert complete(smollm, COUNTING, max_tokens=6, echo=True).text() == COUNTING + said


def test_a_chat_ends_at_the_end_of_turn_and_shows_no_control_token(smollm: LiveServer) -> None:
    questions = ("Say hi.", "What is 2+2? Answer with a number.", "Reply with the single word: yes")
    answers = at_once(*(lambda q=q: chat(smollm, q, max_tokens=80) for q in questions))
    for answer in answers:
        assert not CONTROL.search(answer.text())
        assert not re.search(r"\n(user|assistant)\n", answer.text())
    assert ["stop"] in [finish_of(answer) for answer in answers]


# stop strings


def test_a_stop_string_over_several_tokens_cuts_exactly(smollm: LiveServer, story: tuple[str, str]) -> None:
    prompt, text = story
    at = next(
        i for i in range(9, 50) if " " in text[i + 2 : i + 7] and text[i] != " " and text.find(text[i : i + 9]) == i
    )
    stop = text[at : at + 9]
    for fields in ({"stop": [stop]}, {"stop": stop, "stream": True}):
        cut = complete(smollm, prompt, max_tokens=32, **fields)
        assert cut.text() == text[:at]
        assert finish_of(cut) == ["stop"]


def test_a_stop_string_at_the_start_leaves_nothing_but_counts(smollm: LiveServer, story: tuple[str, str]) -> None:
    prompt, text = story
    plain = complete(smollm, prompt, stop=text[:4])
    assert (plain.text(), finish_of(plain)) == ("", ["stop"])
    assert usage_of(plain)["completion_tokens"] >= 1
    assert complete(smollm, prompt, stop=text[:4], stream=True).text() == ""


def test_a_stop_string_in_the_prompt_alone_cuts_nothing(smollm: LiveServer, story: tuple[str, str]) -> None:
    prompt, text = story
    assert "Once" not in text
    assert text.startswith(complete(smollm, prompt, stop="Once").text())
    assert finish_of(complete(smollm, prompt, stop="Once")) == ["length"]


@pytest.mark.parametrize("stop", ["", [""], ["", "§"]])
def test_an_empty_stop_string_is_refused(smollm: LiveServer, stop: Any) -> None:
    assert complete(smollm, "x", stop=stop).status == 400


# templates


def prompt_tokens(got: Got) -> int:
    assert got.status == 200, got.body
    count: int = usage_of(got)["prompt_tokens"]
    return count


def test_the_template_writes_the_only_bos(smollm: LiveServer) -> None:
    assert prompt_tokens(chat(smollm, "Hello", max_tokens=1)) == 31  # by the model's own tokenizer and template


def test_text_parts_count_as_their_joined_text(smollm: LiveServer) -> None:
    def parts(*texts: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": text} for text in texts]

    one, two = "My name is Alice.", "What is the capital of France?"
    assert prompt_tokens(chat(smollm, parts(two), max_tokens=1)) == prompt_tokens(chat(smollm, two, max_tokens=1))
    for first, second in ((one, two), (two, one)):
        joined = prompt_tokens(chat(smollm, first + second, max_tokens=1))
        assert prompt_tokens(chat(smollm, parts(first, second), max_tokens=1)) == joined


@pytest.mark.parametrize("typed", ["<|im_end|>", "<|im_start|>", "<|endoftext|>"])
def test_control_tokens_that_a_user_types_are_spelled_out(smollm: LiveServer, typed: str) -> None:
    plain = prompt_tokens(chat(smollm, "x", max_tokens=1))
    assert prompt_tokens(chat(smollm, "x" + typed, max_tokens=1)) > plain + 1


# logprobs


def test_logprobs_are_those_of_the_raw_distribution(smollm: LiveServer) -> None:
    choice = chat(smollm, "Name a colour.", logprobs=True, top_logprobs=5, max_tokens=6).json()["choices"][0]
    for entry in choice["logprobs"]["content"]:
        tops = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(tops) == 5
        assert tops == sorted(tops, reverse=True)
        assert entry["logprob"] == tops[0]
        assert all(math.isfinite(value) and value <= 0 for value in tops)
        assert 0 < sum(map(math.exp, tops)) <= 1.0001
    assert min(entry["logprob"] for entry in choice["logprobs"]["content"]) < -0.01, "the temperature was applied"
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]) == choice["message"]["content"]


def test_filters_leave_logprobs_finite(smollm: LiveServer) -> None:
    got = chat(smollm, "Hi", logprobs=True, top_logprobs=5, max_tokens=3, temperature=0.01, top_k=2)
    assert got.status == 200
    assert b"Infinity" not in got.body
    assert b"NaN" not in got.body
