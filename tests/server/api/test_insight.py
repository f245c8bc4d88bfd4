"""Seeing inside: scores of prompts, token ids, and how an answer came about; whole and streamed."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from server.api.prompt_scores import echoed_tokens, listed_logprobs
from server.engine.request import Request, TokenEvent, TokenLogprob
from tests.helpers.api_world import Step, World, make_world, says, scored
from tests.helpers.asgi import Answered, Call, call
from tests.helpers.tiny_text import TinyTokenizer, ids_of, piece_id

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PROMPTS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    COMPLETIONS: {"prompt": "hi"},
}


async def ask(world: World, path: str = COMPLETIONS, **fields: Any) -> Answered:
    return await call(world.app, "POST", path, PROMPTS[path] | {"max_tokens": 20} | fields)


def entry(token: int, *alternatives: tuple[int, float]) -> TokenLogprob:
    return TokenLogprob(-token / 1000, tuple(i for i, _ in alternatives), tuple(p for _, p in alternatives))


# -- the prompt's tokens


def test_echoed_tokens_stand_where_their_text_is_and_specials_take_no_room() -> None:
    ids = ids_of(256, "a", piece_id("🎉"), "b")
    placed = echoed_tokens(TinyTokenizer(), ids, "a🎉b", [entry(i) for i in ids[1:]], best=0)
    assert [each.offset for each in placed] == [0, 0, 1, 2]
    assert [each.entry and each.entry.logprob for each in placed] == [None, *(-i / 1000 for i in ids[1:])]


def test_a_special_token_that_the_user_wrote_has_its_room() -> None:
    placed = echoed_tokens(TinyTokenizer(), ids_of("a", 258, "b"), "a<|turn|>b", [], best=0)
    assert [each.offset for each in placed] == [0, 1, 9]


def test_the_bytes_of_one_character_stand_where_it_begins_or_ends() -> None:
    ids = ids_of("xé!")
    placed = echoed_tokens(TinyTokenizer(), ids, "xé!", [entry(i) for i in ids[1:]], best=0)
    assert [each.offset for each in placed] == [0, 1, 2, 2]


def test_listed_scores_have_ranks_and_the_prompt_s_own_token_even_if_it_is_none_of_the_best() -> None:
    listed = listed_logprobs(TinyTokenizer(), ids_of("ab"), [entry(98, (97, -0.1), (99, -0.2))], best=1)
    assert listed == [
        None,
        {
            "97": {"logprob": -0.1, "rank": 1, "decoded_token": "a"},
            "98": {"logprob": -0.098, "rank": None, "decoded_token": "b"},
        },
    ]


def test_a_prompt_that_was_not_scored_to_its_end_has_nulls_there() -> None:
    assert listed_logprobs(TinyTokenizer(), ids_of("abc"), [entry(98)], best=0)[2] is None


# -- echo with logprobs


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
async def test_echo_with_logprobs_scores_the_prompt_first_entry_null(stream: bool, n: int) -> None:
    world = make_world(says("Yo"))
    answered = await ask(world, echo=True, logprobs=1, stream=stream, n=n)
    joined: list[dict[str, list[Any]]] = [
        {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []} for _ in range(n)
    ]
    texts = [""] * n
    for body in answered.chunks() if stream else [answered.json()]:
        for choice in body["choices"]:
            texts[choice["index"]] += choice["text"]
            for name, values in (choice["logprobs"] or {}).items():
                joined[choice["index"]][name] += values
    for text, found in zip(texts, joined, strict=True):
        assert text == "hiYo"
        assert found["tokens"] == ["<bos>", "h", "i", "Y", "o"]
        assert found["token_logprobs"] == [None, *(-i / 1000 for i in b"hiYo")]
        assert found["top_logprobs"][0] is None
        assert set(found["top_logprobs"][1]) == {"h"}
        assert found["text_offset"] == [0, 0, 1, 2, 3]
    assert [request.prompt_logprobs for request in world.service.submitted] == [1, *[None] * (n - 1)]


async def test_a_prompt_can_be_scored_without_going_on() -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(requests[0].id, prompt_logprobs=(scored(104, 0),))]
        yield [TokenEvent(requests[0].id, prompt_logprobs=(scored(105, 0),), finish="length")]

    world = make_world(play)
    body = (await ask(world, echo=True, logprobs=0, max_tokens=0)).json()
    assert body["choices"][0]["logprobs"]["token_logprobs"] == [None, -0.104, -0.105]
    assert body["choices"][0]["text"] == "hi"
    assert world.service.submitted[0].max_tokens == 0


async def test_a_stream_waits_for_the_prompt_s_scores_and_loses_nothing() -> None:
    gate = asyncio.Event()

    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(requests[1].id, ids_of("x"), (scored(120, 0),))]
        yield gate
        yield [TokenEvent(requests[0].id, prompt_logprobs=(scored(104, 0), scored(105, 0)))]
        yield [TokenEvent(each.id, ids_of("y"), (scored(121, 0),), finish="length") for each in requests]

    world = make_world(play)
    body = b'{"prompt": "hi", "n": 2, "echo": true, "logprobs": 0, "stream": true}'
    under_way = Call(world.app, "POST", COMPLETIONS, [body])
    while not world.figure("kvell_time_to_first_token_seconds_count"):
        await asyncio.sleep(0)
    assert not under_way.answered.blocks
    gate.set()
    texts = {0: "", 1: ""}
    for chunk in (await under_way.done()).chunks():
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == {0: "hiy", 1: "hixy"}


async def test_a_stream_of_two_prompts_waits_for_the_scores_of_both() -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        first, second = requests
        yield [TokenEvent(first.id, ids_of("x"), (scored(120, 0),), prompt_logprobs=(scored(105, 0),))]
        yield [TokenEvent(second.id, prompt_logprobs=(scored(107, 0),))]
        yield [TokenEvent(each.id, ids_of("y"), (scored(121, 0),), finish="length") for each in requests]

    prompts = [list(ids_of("hi")), list(ids_of("ok"))]
    chunks = (await ask(make_world(play), prompt=prompts, prompt_logprobs=0, logprobs=0, stream=True)).chunks()
    told = {c["index"]: c["prompt_logprobs"] for chunk in chunks for c in chunk["choices"] if "prompt_logprobs" in c}
    assert [entry and list(entry) for entry in told[0]] == [None, ["105"]]
    assert [entry and list(entry) for entry in told[1]] == [None, ["107"]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_prompt_logprobs_come_with_the_choice_or_its_first_chunk(path: str, stream: bool) -> None:
    world = make_world(says("Yo"))
    answered = await ask(world, path, prompt_logprobs=2, stream=stream, n=2)
    choices = [c for body in (answered.chunks() if stream else [answered.json()]) for c in body["choices"]]
    for index in range(2):
        first, *later = [choice for choice in choices if choice["index"] == index]
        assert len(first["prompt_logprobs"]) == len(world.service.submitted[0].prompt)
        assert first["prompt_logprobs"][0] is None
        assert [each["rank"] for each in first["prompt_logprobs"][1].values()] == [1, 2]
        assert not any("prompt_logprobs" in choice for choice in later)
        assert first["logprobs"] is None


async def test_more_scores_than_an_answer_may_hold_are_refused_with_both_numbers() -> None:
    world = make_world(max_sequences=2000)
    fields: dict[str, Any] = {"prompt": [[1] * 150] * 14, "n": 128, "prompt_logprobs": 20, "max_tokens": 1}
    answered = await ask(world, **fields)
    assert (answered.status, answered.error["param"]) == (400, "prompt_logprobs")
    assert str(150 * 14 * 128 * 21) in answered.error["message"]
    assert str(2**20) in answered.error["message"]


async def test_cached_tokens_are_those_of_the_choice_that_scored_the_prompt() -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [TokenEvent(requests[1].id, ids_of("x"), finish="length", cached_tokens=2)]
        scores = (scored(104, 0), scored(105, 0))
        yield [TokenEvent(requests[0].id, ids_of("x"), finish="length", prompt_logprobs=scores)]

    body = (await ask(make_world(play), n=2, prompt_logprobs=0)).json()
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert body["kvell"]["cached_tokens"] == 0


# -- token ids


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_token_ids_are_those_of_the_text(path: str, stream: bool) -> None:
    world = make_world(says("abcdef"))
    answered = await ask(world, path, return_token_ids=True, stop="de", stream=stream)
    choices = [c for body in (answered.chunks() if stream else [answered.json()]) for c in body["choices"]]
    assert [i for choice in choices for i in choice.get("token_ids", [])] == list(b"abc")
    assert choices[0]["prompt_token_ids"] == list(world.service.submitted[0].prompt)
    assert choices[0]["logprobs"] is None


async def test_without_being_asked_nothing_of_this_is_shown() -> None:
    (choice,) = (await ask(make_world())).json()["choices"]
    assert set(choice) == {"index", "text", "logprobs", "finish_reason"}


# -- how it came about


def timed(request: Request, **more: Any) -> TokenEvent:
    times = {"queue_seconds": 0.5, "prompt_seconds": 0.25, "decode_seconds": 1.0}
    return TokenEvent(request.id, ids_of("ab"), finish="length", **(times | more))


@pytest.mark.parametrize("how", ["whole", "stream", "with usage"])
async def test_every_answer_says_how_it_came_about(how: str) -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        yield [timed(requests[0], preemptions=2, cached_tokens=1), timed(requests[1], preemptions=1, queue_seconds=3)]

    options = {} if how == "whole" else {"stream": True}
    options |= {"stream_options": {"include_usage": True}} if how == "with usage" else {}  # type: ignore[dict-item]
    answered = await ask(make_world(play), n=2, seed=5, **options)
    bodies = [answered.json()] if how == "whole" else answered.chunks()
    assert [body["kvell"] for body in bodies if "kvell" in body] == [
        {
            "queue_ms": 3000.0,
            "prompt_ms": 250.0,
            "decode_ms": 1000.0,
            "cached_tokens": 1,
            "preemptions": 3,
            "seed": 5,
            "ended_by": "length",
        }
    ]
    assert "kvell" in bodies[-1]


@pytest.mark.parametrize(
    ("events", "stop", "ended_by"),
    [
        ([{"tokens": ids_of("ab", 257), "finish": "stop"}], "x", "stop_token"),
        ([{"tokens": ids_of("ab"), "finish": "length"}], "x", "length"),
        ([{"tokens": ids_of("ab"), "finish": "length"}], "b", "stop_string"),
        ([{"tokens": ids_of("a")}, {"finish": "length", "ended_by": "deadline"}], "x", "deadline"),
    ],
)
async def test_it_says_what_ended_the_answer(events: list[dict[str, Any]], stop: str, ended_by: str) -> None:
    def play(requests: Sequence[Request]) -> Iterable[Step]:
        for each in events:
            yield [TokenEvent(requests[0].id, **each)]

    body = (await ask(make_world(play), stop=stop)).json()
    assert body["kvell"]["ended_by"] == ended_by
    assert body["choices"][0]["finish_reason"] == ("stop" if ended_by.startswith("stop") else "length")


async def test_a_drawn_seed_is_one_that_javascript_can_hold_and_is_reported() -> None:
    world = make_world()
    seeds = [(await ask(world)).json()["kvell"]["seed"] for _ in range(20)]
    assert len(set(seeds)) == 20
    assert all(0 <= seed < 2**53 for seed in seeds)
    assert [request.params.seed for request in world.service.submitted] == seeds


# -- the best of several


def play_best(requests: Sequence[Request]) -> Iterable[Step]:
    """Choice c is c+1 tokens of a logprob that is best for choices 2 and 0, in this order."""
    logprob = {0: -0.5, 1: -3.0, 2: -0.25, 3: -1.0}
    for each in requests:
        choice = each.params.choice
        tokens = ids_of(chr(97 + choice)) * (choice + 1)
        assert each.params.num_logprobs is not None
        scores = (TokenLogprob(logprob[choice]),) * len(tokens)
        yield [TokenEvent(each.id, tokens, scores, finish="length")]


async def test_of_best_of_choices_the_likeliest_per_token_are_shown_best_first() -> None:
    world = make_world(play_best)
    body = (await ask(world, prompt=["x", "y"], best_of=4, n=2)).json()
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [
        (0, "ccc"),
        (1, "a"),
        (2, "ccc"),
        (3, "a"),
    ]
    assert len(world.service.submitted) == 8
    assert body["usage"]["completion_tokens"] == 2 * (1 + 2 + 3 + 4)
    assert all(choice["logprobs"] is None for choice in body["choices"])


async def test_best_of_as_many_as_are_shown_keeps_their_order_and_may_stream() -> None:
    world = make_world(says("ab"))
    assert (await ask(world, best_of=2, n=2, stream=True)).status == 200
    assert [request.params.num_logprobs for request in world.service.submitted] == [None, None]


@pytest.mark.parametrize(
    ("fields", "words"), [({"best_of": 1, "n": 2}, "n is 2"), ({"best_of": 2, "stream": True}, "stream")]
)
async def test_best_of_that_makes_no_sense_is_refused(fields: dict[str, Any], words: str) -> None:
    answered = await ask(make_world(), **fields)
    assert (answered.status, answered.error["param"]) == (400, "best_of")
    assert words in answered.error["message"]
