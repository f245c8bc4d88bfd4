"""Random good and bad requests at a whole server with a tiny exact model: no 5xx, and every law of streams.

What comes streamed is what comes whole, over all fields that change an answer's form at once: several prompts, n, stop
strings, logprobs, echo, token ids, usage in every chunk. KVELL_EXAMPLES=2000 looks further, at new ones each time.
"""

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.live_server import Got, LiveServer

pytestmark = pytest.mark.e2e

EXAMPLES = os.environ.get("KVELL_EXAMPLES")
FAST = settings(
    max_examples=int(EXAMPLES or 25),
    deadline=None,
    derandomize=EXAMPLES is None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXTS = st.text("ab the\n\u00e9\U0001f389<|end|>", max_size=12)
STOPS = st.lists(st.sampled_from(["a", "th", "the", "\ufffd", "n\ufffd", "on", "\n"]), max_size=4)
COMMON = {
    "max_tokens": st.integers(1, 12),
    "n": st.integers(1, 3),
    "stop": STOPS,
    "temperature": st.sampled_from([0, 0.7, 2]),
    "min_tokens": st.integers(0, 1),
    "ignore_eos": st.booleans(),
    "presence_penalty": st.sampled_from([-2, 0, 1.5]),
    "include_stop_str_in_output": st.booleans(),
    "return_token_ids": st.booleans(),
    "truncate_prompt_tokens": st.integers(1, 8),
}
COMPLETION = COMMON | {
    "prompt": st.one_of(
        TEXTS,
        st.lists(TEXTS, min_size=1, max_size=3),
        st.lists(st.integers(0, 200), min_size=1, max_size=9),
    ),
    "echo": st.booleans(),
    "logprobs": st.integers(0, 3),
}
TURN = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": TEXTS})
CHAT = COMMON | {
    "messages": st.lists(TURN, min_size=1, max_size=3),
    "logprobs": st.just(True),
    "top_logprobs": st.integers(0, 3),
}
OPTIONS = st.fixed_dictionaries(
    {}, optional={name: st.booleans() for name in ("include_usage", "continuous_usage_stats", "include_progress")}
)


def bodies(fields: dict[str, Any], *needed: str) -> st.SearchStrategy[dict[str, Any]]:
    """The needed fields and any of the others."""
    rest = {name: value for name, value in fields.items() if name not in needed}
    return st.fixed_dictionaries({name: fields[name] for name in needed}, optional=rest)


def whole_of(got: Got) -> dict[int, dict[str, Any]]:
    """Each choice in one form, whatever the endpoint."""
    return {choice["index"]: form_of(choice) for choice in got.json()["choices"]}


def form_of(choice: dict[str, Any]) -> dict[str, Any]:
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    return {
        "text": text,
        "logprobs": entries_of(choice["logprobs"]),
        "ids": choice.get("token_ids", []),
        "prompt_ids": choice.get("prompt_token_ids"),
        "finish": choice["finish_reason"],
    }


def entries_of(logprobs: dict[str, Any] | None) -> list[Any]:
    if logprobs is None:
        return []
    if "content" in logprobs:
        return list(logprobs["content"])
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    return list(zip(*(logprobs[name] for name in names), strict=True))


def streamed_of(chunks: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The same from the chunks, with what must hold on the way."""
    found: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            empty = {"text": "", "logprobs": [], "ids": [], "prompt_ids": None, "finish": None}
            form = found.setdefault(choice["index"], empty)
            assert form["finish"] is None, "something came after the end"
            said = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            said.encode()  # no half of a surrogate pair
            form["text"] += said
            form["logprobs"] += entries_of(choice["logprobs"])
            form["ids"] += choice.get("token_ids", [])
            form["prompt_ids"] = form["prompt_ids"] or choice.get("prompt_token_ids")
            form["finish"] = choice["finish_reason"]
    return found


def check_frames(chunks: list[Any], options: dict[str, Any], usage: dict[str, Any]) -> None:
    """One id and time; usage where it was asked for, null elsewhere or absent; [DONE] once, at the end."""
    assert chunks.count("[DONE]") == 1
    assert chunks[-1] == "[DONE]"
    body = chunks[:-1]
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in body}) == 1
    wanted, always = options.get("include_usage"), options.get("continuous_usage_stats")
    assert [("usage" in chunk) for chunk in body] == [bool(wanted or always)] * len(body)
    if always:
        counts = [chunk["usage"]["completion_tokens"] for chunk in body]
        assert counts == sorted(counts)
    if wanted:
        assert body[-1]["choices"] == []
        if not always:
            assert [chunk["usage"] for chunk in body[:-1]] == [None] * (len(body) - 1)
    if wanted or always:
        same = ("prompt_tokens", "completion_tokens", "total_tokens")
        assert {name: body[-1]["usage"][name] for name in same} == {name: usage[name] for name in same}
    assert "kvell" in body[-1]


def check_choice(form: dict[str, Any], body: dict[str, Any], echoed: bool) -> None:
    """What must hold of each answer by itself."""
    assert form["finish"] in ("stop", "length")
    scored = form["logprobs"]
    if scored and isinstance(scored[0], tuple):
        offsets = [entry[3] for entry in scored]
        assert offsets == sorted(offsets)
        assert all(0 <= offset <= len(form["text"]) for offset in offsets)
    answered = scored[len(form["prompt_ids"] or ()) :] if echoed and form["prompt_ids"] else scored
    if form["ids"] and answered:
        assert len(form["ids"]) == len(answered), "ids and logprobs are cut at different places"
    if not echoed and not body.get("include_stop_str_in_output") and not body.get("min_tokens"):
        assert not any(stop in form["text"] for stop in body.get("stop", ()))


def agree(server: LiveServer, path: str, body: dict[str, Any], options: dict[str, Any], seed: int) -> None:
    """Ask whole and streamed, and hold one against the other."""
    asked = body | {"seed": seed}
    whole = server.request("POST", path, asked)
    extra: dict[str, Any] = {"stream": True} | ({"stream_options": options} if options else {})
    streamed = server.request("POST", path, asked | extra)
    assert whole.status == streamed.status, (whole.body, streamed.body)
    if whole.status != 200:
        assert whole.status == 400
        assert whole.json() == streamed.json()
        return
    chunks = streamed.events()
    usage = whole.json()["usage"]
    check_frames(chunks, options, usage)
    one, other = whole_of(whole), streamed_of(chunks[:-1])
    assert one == other
    for form in one.values():
        check_choice(form, body, bool(body.get("echo")))


@FAST
@given(body=bodies(COMPLETION, "prompt"), options=OPTIONS, seed=st.integers(0, 2**20))
def test_completions(server: LiveServer, body: dict[str, Any], options: dict[str, Any], seed: int) -> None:
    agree(server, "/v1/completions", body, options, seed)


@FAST
@given(body=bodies(CHAT, "messages", "max_tokens"), options=OPTIONS, seed=st.integers(0, 2**20))
def test_chats(server: LiveServer, body: dict[str, Any], options: dict[str, Any], seed: int) -> None:
    agree(server, "/v1/chat/completions", body, options, seed)


@FAST
@given(content=TEXTS, system=st.one_of(st.none(), TEXTS), stops=STOPS, most=st.integers(1, 12), seed=st.integers(0, 99))
def test_the_three_ways_to_chat_say_the_same(
    server: LiveServer, content: str, system: str | None, stops: list[str], most: int, seed: int
) -> None:
    user = [{"role": "user", "content": content}]
    messages = ([] if system is None else [{"role": "system", "content": system}]) + user
    chat = server.request(
        "POST", "/v1/chat/completions", {"messages": messages, "max_tokens": most, "seed": seed, "stop": stops}
    ).json()
    asked: dict[str, Any] = {"messages": user, "max_tokens": most, "seed": seed, "stop_sequences": stops}
    claude = server.request("POST", "/v1/messages", asked | ({"system": system} if system else {})).json()
    if system != "":  # which Anthropic's API takes for none
        assert claude["content"][0]["text"] == chat["choices"][0]["message"]["content"]
        assert claude["usage"]["output_tokens"] == chat["usage"]["completion_tokens"]
    if not stops:
        asked = {"input": user, "instructions": system, "max_output_tokens": most, "seed": seed}
        response = server.request("POST", "/v1/responses", asked).json()
        assert response["output"][0]["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    tokens = server.request("POST", "/tokenize", {"messages": messages}).json()["count"]
    assert tokens == chat["usage"]["prompt_tokens"]


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**20), st.floats(allow_nan=False), TEXTS, st.lists(st.integers())
)
PARTS = st.lists(st.dictionaries(st.sampled_from(["role", "content", "type", "text"]), ODD), max_size=2)


@FAST
@given(
    path=st.sampled_from(
        ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/tokenize", "/detokenize"]
    ),
    names=st.dictionaries(
        st.sampled_from([*COMPLETION, *CHAT, "input", "tokens", "system", "tools", "stream", "logit_bias", "x"]),
        st.one_of(ODD, PARTS),
        max_size=6,
    ),
)
def test_nonsense_is_refused_and_harms_nobody(server: LiveServer, path: str, names: dict[str, Any]) -> None:
    got = server.request("POST", path, names | {"max_tokens": 2} if path.startswith("/v1/m") else names)
    assert got.status < 500, got.body
    if got.status != 200:
        assert got.json()["error"]["message"]
        json.dumps(got.json())
