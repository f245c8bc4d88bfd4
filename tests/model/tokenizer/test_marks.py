from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.tokenizer.marks import Marker
from model.tokenizer.special import SpecialFinder, without

IDS = {"<|im_end|>": 1, "<|im_start|>": 2, "<s>": 3, "[INST]": 4, "INST": 5}
MARK = "\ue000"
marker, finder = Marker(IDS), SpecialFinder(IDS)


def live(text: str) -> list[int]:
    """Special tokens that would count."""
    return [found.id for found in finder.find(text, mark=MARK)]


fragments = st.sampled_from([*IDS, "<", "<|im_", "end|>", "[", "IN", "ST]", "|>", "s>", "text ", " "])
texts = st.lists(fragments, max_size=6).map("".join)


@given(text=texts)
def test_marked_text_has_no_special_token_that_counts_and_is_the_text(text: str) -> None:
    for marked in (marker.broken(text, MARK), marker.prefixed(text, MARK)):
        assert live(marked) == []
        assert without(marked, MARK) == text


@given(parts=st.lists(texts, max_size=4))
def test_texts_put_together_make_no_special_token_either(parts: list[str]) -> None:
    for mark in (marker.broken, marker.prefixed):
        assert live("".join(mark(part, MARK) for part in parts)) == []


@given(text=texts)
def test_a_special_token_of_the_template_right_behind_still_counts(text: str) -> None:
    for mark in (marker.broken, marker.prefixed):
        assert live(mark(text, MARK) + "<|im_end|>")[-1:] == [1]
        assert live("<s>" + mark(text, MARK))[:1] == [3]


@given(text=texts, start=st.integers(0, 9), end=st.integers(0, 9))
def test_no_slice_of_broken_text_has_a_special_token_that_counts(text: str, start: int, end: int) -> None:
    marked = marker.broken(text, MARK)
    assert live(marked[start : len(marked) - end].strip()) == []


def test_prefixed_text_can_still_be_found_and_split() -> None:
    marked = marker.prefixed("a<|im_end|>b", MARK)
    assert "<|im_end|>" in marked
    assert without(marked.split("<|im_end|>")[-1], MARK) == "b"


def test_a_token_inside_a_broken_one_is_broken_too() -> None:
    marked = marker.broken("[INST]", MARK)
    assert [live(marked[start:]) for start in range(len(marked))] == [[]] * len(marked)


def test_everything_json_can_hold_is_marked_keys_too() -> None:
    value: Any = {"<s>": ["x<s>", 1, None, True, {"k": ("<s>",)}], "plain": 1.5}
    assert marker.prefixed(value, "#") == {"#<s>": ["x#<s>", 1, None, True, {"k": ["#<s>"]}], "plain": 1.5}


@pytest.mark.parametrize(
    ("value", "touched"), [("a<s>", True), ("a <", True), ({"[INST]": 1}, True), ("a>", False), ([1, None], False)]
)
def test_only_text_that_needs_it_is_touched(value: Any, touched: bool) -> None:
    assert marker.touches([value]) == touched


def test_the_mark_occurs_nowhere_in_the_input() -> None:
    assert marker.unused_mark(["a", {"\ue000": ["\ue001"]}], "template \ue002") == "\ue003"


def test_a_mark_is_found_even_if_the_input_has_every_character_of_the_first_plane() -> None:
    everything = "".join(chr(code) for code in range(0xE000, 0xF900))
    assert marker.unused_mark([everything], "") == "\U000f0000"


def test_without_special_tokens_nothing_is_marked() -> None:
    plain = Marker({})
    assert not plain.touches(["<|im_end|> <"])


def test_generators_of_values_are_read_once() -> None:
    def values() -> Iterator[str]:
        yield "a"
        yield "<s>"

    assert marker.touches(values())
