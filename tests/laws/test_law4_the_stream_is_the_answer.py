"""Law 4 over HTTP: joined deltas are the whole answer; text, tokens and logprobs end at the same place.

Random crowds of requests whose tokens, stop strings, step sizes and endings are made to collide: few characters, stops
that overlap, characters of several tokens, answers that end in the middle of one.
"""

import asyncio
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest

from server.engine.request import Request
from tests.helpers.api_world import Step, World, events_of, make_world
from tests.helpers.asgi import Answered, call
from tests.helpers.tiny_text import FIRST_PIECE, PIECES, TinyTokenizer, piece_id, text_of

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
STOPS = ["lo", "lo w", "ab", "bc", "abc", "bcab", "🎉", "é", "\n\n", "a\n", "Hello"]
END = piece_id("ld")
TOKENS = [*range(FIRST_PIECE, FIRST_PIECE + len(PIECES)), *"aé🎉b".encode(), 258]


def script(request: Request) -> list[int]:
    """What the engine writes for a request: a function of seed, prompt and choice."""
    random = Random(f"{request.params.seed} {request.prompt} {request.params.choice}")
    return [random.choice(TOKENS) for _ in range(random.randint(1, 30))]


def play(requests: Sequence[Request]) -> Iterable[Step]:
    """All choices side by side, each with its own number of tokens per step; some end by a token, some by length.

    The token that ends an answer has a text of its own, as any may that the user names; it must not show.
    """
    lines = []
    for request in requests:
        tokens = script(request)
        ends = len(tokens) % 2 == 0
        per_step = 1 + (len(tokens) + request.params.choice) % 4
        finish = "stop" if ends else "length"
        lines.append(events_of(request, [*tokens, END] if ends else tokens, finish=finish, per_step=per_step))  # type: ignore[arg-type]
    for step in range(max(map(len, lines))):
        yield [event for line in lines if step < len(line) for event in line[step]]


def ask(random: Random, number: int) -> tuple[str, dict[str, Any]]:
    """A request with a random number of choices and stop strings."""
    fields: dict[str, Any] = {"seed": number, "n": random.randint(1, 3), "max_tokens": 100}
    if random.random() < 0.8:
        fields["stop"] = random.sample(STOPS, random.randint(1, 4))
    if random.random() < 0.3:
        fields["min_tokens"] = random.randint(1, 10)
    if random.random() < 0.5:
        return CHAT, fields | {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 1}
    return COMPLETIONS, fields | {"prompt": [f"p{k}" for k in range(random.randint(1, 3))], "logprobs": 1}


def ask_for_all(random: Random, number: int) -> tuple[str, dict[str, Any]]:
    """And what an answer can show besides."""
    (path, fields), more = ask(random, number), Random(number)
    fields |= {
        "return_token_ids": more.random() < 0.5,
        "prompt_logprobs": more.choice([None, None, 0, 2]),
        "include_stop_str_in_output": more.random() < 0.3,
    }
    return path, fields if path == CHAT else fields | {"echo": more.random() < 0.5}


class Joined:
    """One choice, put together from whatever form it came in."""

    def __init__(self) -> None:
        self.text = ""
        self.tokens: list[Any] = []
        self.ids: list[int] = []
        self.prompt: list[Any] = []
        self.finish: str | None = None

    def add(self, choice: dict[str, Any]) -> None:
        assert self.finish is None, "something came after the end"
        said = choice.get("text")
        if said is None:
            said = (choice.get("delta") or choice.get("message") or {}).get("content", "")
        assert not any(0xD800 <= ord(character) < 0xE000 for character in said)
        self.text += said
        scored = choice["logprobs"] or {}
        self.tokens += scored.get(
            "content", list(zip(scored.get("tokens", []), scored.get("text_offset", []), strict=True))
        )
        self.ids += choice.get("token_ids", [])
        self.prompt += [choice[name] for name in ("prompt_token_ids", "prompt_logprobs") if name in choice]
        self.finish = choice["finish_reason"]


def joined(answered: Answered, *, streamed: bool) -> dict[int, Joined]:
    assert answered.status == 200, answered.body
    found: dict[int, Joined] = {}
    for body in answered.chunks() if streamed else [answered.json()]:
        for choice in body["choices"]:
            found.setdefault(choice["index"], Joined()).add(choice)
    return found


def usage(answered: Answered, *, streamed: bool) -> dict[str, Any]:
    found: dict[str, Any] = (answered.chunks()[-1] if streamed else answered.json())["usage"]
    return found


async def send(world: World, path: str, fields: dict[str, Any], *, streamed: bool) -> Answered:
    extra = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
    return await call(world.app, "POST", path, fields | extra)


@pytest.mark.parametrize("seed", range(20))
async def test_streamed_and_whole_are_the_same_in_a_crowd(seed: int) -> None:
    random = Random(seed)
    asked = [ask_for_all(random, number) for number in range(8)]
    world = make_world(play)
    both = [(path, fields, streamed) for path, fields in asked for streamed in (False, True)]
    answers = await asyncio.gather(*(send(world, path, fields, streamed=s) for path, fields, s in both))
    for whole, streamed in zip(answers[::2], answers[1::2], strict=True):
        one, other = joined(whole, streamed=False), joined(streamed, streamed=True)
        assert {i: vars(c) for i, c in one.items()} == {i: vars(c) for i, c in other.items()}
        assert usage(whole, streamed=False) == usage(streamed, streamed=True)
    said = sum(usage(a, streamed=s)["completion_tokens"] for a, (_, _, s) in zip(answers, both, strict=True))
    assert world.figure("kvell_generation_tokens_total") == said
    assert len(world.service.in_flight) == 0


@pytest.mark.parametrize("seed", range(20, 30))
async def test_no_answer_holds_a_stop_string_and_its_tokens_end_where_it_ends(seed: int) -> None:
    random = Random(seed)
    world = make_world(play)
    for number in range(8):
        path, fields = ask(random, number)
        answered = await send(world, path, fields | {"min_tokens": 0}, streamed=True)
        requests = world.service.submitted[-len(joined(answered, streamed=True)) :]
        for index, choice in joined(answered, streamed=True).items():
            assert not any(stop in choice.text for stop in fields.get("stop", []))
            written = script(requests[index])
            ids = written[: len(choice.tokens)]
            assert text_of(ids).startswith(choice.text)
            if len(ids) == len(written) and not any(stop in text_of(written) for stop in fields.get("stop", [])):
                assert text_of(written) == choice.text
            elif ids:
                before_last = b"".join(map(TinyTokenizer().piece, ids[:-1])).decode("utf-8", "replace")
                assert len(before_last.rstrip("\ufffd")) < len(choice.text), "a token that begins after the end"
