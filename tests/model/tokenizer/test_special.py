import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.tokenizer.special import Found, SpecialFinder, without

IDS = {"<s>": 1, "<s><t>": 2, "</s>": 3, "[INST]": 4, "INST": 5}
finder = SpecialFinder(IDS)


def test_occurrences_come_from_left_to_right_with_their_places() -> None:
    assert list(finder.find("a<s>b</s>")) == [Found(1, 4, 1), Found(5, 9, 3)]


def test_the_longest_at_a_place_wins_and_none_overlap() -> None:
    assert [found.id for found in finder.find("<s><t><s>[INST]INST")] == [2, 1, 4, 5]


def test_nearly_special_text_is_not_found() -> None:
    assert list(finder.find("<s <t> s> [INS T] <")) == []


def test_what_follows_the_mark_is_not_found_nor_what_is_inside_it() -> None:
    assert list(finder.find("#[INST]<s>", mark="#")) == [Found(7, 10, 1)]
    assert list(finder.find("[#INST]", mark="#")) == []


def test_sections_are_text_and_ids_by_turns_without_marks_and_empty_text() -> None:
    assert list(finder.sections("<s>a#<s>b</s></s>#", mark="#")) == [1, "a<s>b", 3, 3]
    assert list(finder.sections("")) == []


def test_no_special_tokens_find_nothing() -> None:
    assert list(SpecialFinder({}).sections("a<s>")) == ["a<s>"]
    assert list(SpecialFinder({"": 7}).find("a")) == []


@pytest.mark.parametrize(("place", "length"), [(0, 6), (3, 0), (6, 3), (9, 0), (99, 0)])
def test_length_at_a_place(place: int, length: int) -> None:
    assert finder.length_at("<s><t><s>", place) == length


@given(text=st.text("<s>/INST[]t#", max_size=30))
def test_sections_joined_are_the_text(text: str) -> None:
    texts = {token_id: token for token, token_id in IDS.items()}
    sections = finder.sections(text, mark="#")
    assert "".join(part if isinstance(part, str) else texts[part] for part in sections) == without(text, "#")
