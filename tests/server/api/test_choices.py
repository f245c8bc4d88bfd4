"""One answer, growing: text, tokens and logprobs end at the same place, however the tokens arrive (law 4)."""

import codecs
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.sampling_params import SamplingParams
from server.api.choices import Choice, Delta
from server.engine.errors import GenerationFailed
from server.engine.request import FinishReason, Request, TokenEvent
from server.engine.stops import StopMatcher
from tests.helpers.api_world import scored
from tests.helpers.tiny_text import TinyTokenizer, ids_of, piece_id, text_of

EOS = 257


def choice(*stops: str, min_tokens: int = 0, prompt: tuple[int, ...] = (256,)) -> Choice:
    request = Request("r", prompt, 100, SamplingParams(min_tokens=min_tokens, num_logprobs=1))
    return Choice(request, TinyTokenizer(), StopMatcher(stops))


def event(*tokens: int, finish: FinishReason | None = None, error: str | None = None) -> TokenEvent:
    return TokenEvent("r", tokens, tuple(scored(token, 1) for token in tokens), finish, error)


def run(grown: Choice, tokens: Sequence[int], *, finish: FinishReason, sizes: Sequence[int] = ()) -> list[Delta]:
    """Push tokens in events of these sizes (then one by one), until the answer has ended."""
    deltas: list[Delta] = []
    left, sizes = list(tokens), list(sizes)
    while left and grown.finish is None:
        size = sizes.pop(0) if sizes else 1
        part, left = left[:size], left[size:]
        deltas.append(grown.push(event(*part, finish=None if left else finish)))
    return deltas


def text(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def scored_tokens(deltas: Sequence[Delta]) -> list[int]:
    return [each.token for delta in deltas for each in delta.scored]


def test_the_example_in_the_docstring() -> None:
    grown = choice("o w")
    tokens = [piece_id("Hel"), piece_id("lo"), piece_id(" wor"), piece_id("ld")]
    deltas = run(grown, tokens, finish="length")
    assert [(delta.text, delta.finish) for delta in deltas] == [("Hel", None), ("l", None), ("", "stop")]
    assert [scored_tokens([delta]) for delta in deltas] == [[piece_id("Hel")], [], [piece_id("lo")]]
    assert grown.num_tokens == 3


def test_the_stop_token_counts_and_does_not_show_even_if_it_has_text() -> None:
    grown = choice()
    deltas = run(grown, ids_of("ab,"), finish="stop")
    assert text(deltas) == "ab"
    assert scored_tokens(deltas) == [*b"ab"]
    assert (grown.num_tokens, grown.finish) == (3, "stop")


def test_a_stop_at_the_very_first_characters_leaves_an_empty_answer() -> None:
    grown = choice("Hel")
    deltas = run(grown, [piece_id("Hel"), piece_id("lo")], finish="length")
    assert (text(deltas), scored_tokens(deltas), grown.num_tokens, grown.finish) == ("", [], 1, "stop")


def test_what_is_held_back_comes_out_when_the_answer_ends_otherwise() -> None:
    deltas = run(choice("lo world"), [piece_id("Hel"), piece_id("lo"), EOS], finish="stop")
    assert [delta.text for delta in deltas] == ["He", "l", "lo"]
    assert scored_tokens(deltas) == [piece_id("Hel"), piece_id("lo")]


def test_a_stop_within_one_token_keeps_the_token_whose_beginning_is_in_the_text() -> None:
    deltas = run(choice("b"), [piece_id("abc"), piece_id("lo")], finish="length")
    assert text(deltas) == "a"
    assert scored_tokens(deltas) == [piece_id("abc")]


def test_a_character_of_four_tokens_comes_whole_with_all_its_tokens() -> None:
    deltas = run(choice(), ids_of("é🎉"), finish="length")
    assert [delta.text for delta in deltas] == ["", "é", "", "", "", "🎉"]
    assert [len(delta.scored) for delta in deltas] == [0, 2, 0, 0, 0, 4]
    assert [each.offset for delta in deltas for each in delta.scored] == [0, 0, 1, 1, 1, 1]


def test_an_answer_cut_in_a_character_ends_with_one_replacement_character() -> None:
    deltas = run(choice(), ids_of("a🎉")[:-1], finish="length")
    assert text(deltas) == "a\ufffd"
    assert len(scored_tokens(deltas)) == 4


def test_a_stop_before_an_unfinished_character_drops_that_character_s_tokens() -> None:
    grown = choice("b")
    deltas = run(grown, [*b"a", *"é".encode(), *b"b"], finish="length")
    assert (text(deltas), scored_tokens(deltas)) == ("aé", [*b"a", *"é".encode()])


def test_tokens_after_a_stop_in_the_same_event_do_not_count() -> None:
    grown = choice("b")
    delta = grown.push(event(*b"abcde"))
    assert (delta.text, delta.finish, grown.num_tokens) == ("a", "stop", 2)


def test_a_stop_string_counts_only_once_min_tokens_are_there() -> None:
    grown = choice("b", min_tokens=3)
    deltas = run(grown, [*b"abab"], finish="length")
    assert (text(deltas), grown.num_tokens) == ("aba", 4)


def test_min_tokens_is_reached_by_the_token_that_completes_the_stop_string() -> None:
    grown = choice("b", min_tokens=2)
    assert text(run(grown, [*b"abab"], finish="length")) == "a"
    assert grown.num_tokens == 2


def test_the_prompt_s_half_character_is_completed_by_the_answer() -> None:
    grown = choice(prompt=(256, *"🎉".encode()[:2]))
    assert text(run(grown, [*"🎉".encode()[2:], *b"x"], finish="length")) == "🎉x"


def test_the_prompt_is_never_searched_for_stop_strings() -> None:
    grown = choice("ab", prompt=ids_of("xa"))
    assert text(run(grown, [*b"bc"], finish="length")) == "bc"


@pytest.mark.parametrize("finish", ["error", "cancelled"])
def test_an_engine_that_gives_up_is_an_error_with_its_reason(finish: FinishReason) -> None:
    grown = choice()
    grown.push(event(*b"a"))
    with pytest.raises(GenerationFailed, match="out of numbers"):
        grown.push(event(finish=finish, error="out of numbers"))


def test_an_end_without_tokens_still_ends_the_answer() -> None:
    grown = choice("lo world")
    grown.push(event(piece_id("lo")))
    delta = grown.push(event(finish="length"))
    assert (delta.text, delta.finish) == ("lo", "length")


TOKENS = st.lists(st.sampled_from([*range(260, 270), *"aé🎉 \n".encode(), 256, 258]), min_size=1, max_size=24)
STOPS = st.lists(st.sampled_from(["lo", "lo w", "ab", "abc", "🎉", "é", " ", "\n\n", "bcab", "Hello"]), max_size=3)
SIZES = st.lists(st.integers(1, 5), max_size=24)
ENDS: st.SearchStrategy[FinishReason] = st.sampled_from(["stop", "length"])


def complete(tokens: Sequence[int]) -> str:
    """The text of these tokens without a character that further bytes may complete."""
    data = b"".join(TinyTokenizer().piece(token) for token in tokens)
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def expected(tokens: Sequence[int], stops: Sequence[str], finish: FinishReason) -> tuple[str, str, int]:
    """Text, reason and number of tokens, worked out from the whole: the first stop string to be complete wins."""
    shown = list(tokens[:-1] if finish == "stop" else tokens)
    for count in range(1, len(shown) + 1):
        whole = text_of(shown) if count == len(shown) else complete(shown[:count])
        ends = [(whole.find(stop) + len(stop), whole.find(stop)) for stop in stops if stop in whole]
        if ends:
            return whole[: min(ends)[1]], "stop", count
    return text_of(shown), finish, len(tokens)


@given(TOKENS, STOPS, SIZES, ENDS)
def test_any_split_into_events_gives_the_same_answer(
    tokens: list[int], stops: list[str], sizes: list[int], finish: FinishReason
) -> None:
    at_once, in_parts = choice(*stops), choice(*stops)
    whole = run(at_once, tokens, finish=finish, sizes=[len(tokens)])
    parts = run(in_parts, tokens, finish=finish, sizes=sizes)
    assert text(whole) == text(parts)
    assert scored_tokens(whole) == scored_tokens(parts)
    assert (at_once.num_tokens, at_once.finish) == (in_parts.num_tokens, in_parts.finish)


@given(TOKENS, STOPS, SIZES, ENDS)
def test_the_answer_is_the_text_up_to_the_first_stop_string(
    tokens: list[int], stops: list[str], sizes: list[int], finish: FinishReason
) -> None:
    grown = choice(*stops)
    deltas = run(grown, tokens, finish=finish, sizes=sizes)
    assert (text(deltas), grown.finish, grown.num_tokens) == expected(tokens, stops, finish)
    assert [delta.finish for delta in deltas if delta.finish] == [grown.finish]
    assert deltas[-1].finish == grown.finish


@given(TOKENS, STOPS)
def test_all_is_out_but_half_characters_and_what_may_become_a_stop_string(tokens: list[int], stops: list[str]) -> None:
    grown = choice(*stops)
    said = ""
    for count, token in enumerate(tokens, 1):
        delta = grown.push(event(token))
        said += delta.text
        if delta.finish:
            break
        known = complete(tokens[:count])
        held = max((k for stop in stops for k in range(len(stop)) if known.endswith(stop[:k])), default=0)
        assert said == known[: len(known) - held]


@given(TOKENS, STOPS, SIZES, ENDS)
def test_the_scored_tokens_are_those_that_wrote_the_text(
    tokens: list[int], stops: list[str], sizes: list[int], finish: FinishReason
) -> None:
    grown = choice(*stops)
    deltas = run(grown, tokens, finish=finish, sizes=sizes)
    ids = scored_tokens(deltas)
    assert ids == tokens[: len(ids)]
    said = text(deltas)
    assert text_of(ids).startswith(said), "the tokens do not reach the text's end"
    if grown.finish == "stop" and grown.num_tokens < len(tokens):
        starts = [each.offset for delta in deltas for each in delta.scored]
        assert all(start < len(said) for start in starts), "a token that begins after the end"
