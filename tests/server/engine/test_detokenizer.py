"""Tokens here are byte strings: token i of a world is world[i]."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.engine.detokenizer import Detokenizer, decode
from tests.helpers.nasty_texts import NASTY_TEXTS


@dataclass(frozen=True)
class World:
    """A tokenizer whose ids index its pieces."""

    pieces: Sequence[bytes]
    adds_space: bool = False

    def piece(self, token_id: int) -> bytes:
        return self.pieces[token_id]

    @property
    def ids(self) -> range:
        return range(len(self.pieces))


def streamed(answer: Sequence[bytes], prompt: Sequence[bytes] = (), *, adds_space: bool = False) -> list[str]:
    """The deltas of an answer, one per token, and the flush."""
    world = World([*prompt, *answer], adds_space)
    detokenizer = Detokenizer(world, world.ids[: len(prompt)])
    return [*(detokenizer.push([token_id]) for token_id in world.ids[len(prompt) :]), detokenizer.flush()]


cuts = st.lists(st.integers(0, 60), max_size=12)
byte_strings = st.one_of(
    st.sampled_from(NASTY_TEXTS).map(lambda text: text[:40].encode()),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12).map(str.encode),
    st.binary(max_size=12),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces; some of them are empty, as special tokens' are."""
    edges = sorted(min(place, len(data)) for place in places)
    return [data[i:j] for i, j in zip([0, *edges], [*edges, len(data)], strict=True)]


@given(data=byte_strings, places=cuts)
def test_deltas_joined_are_the_decoded_bytes(data: bytes, places: list[int]) -> None:
    assert "".join(streamed(cut(data, places))) == data.decode(errors="replace")


@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=20), places=cuts)
def test_no_delta_of_whole_text_has_a_replacement_character_of_its_own(text: str, places: list[int]) -> None:
    deltas = streamed(cut(text.encode(), places))
    assert sum(delta.count("\ufffd") for delta in deltas) == text.count("\ufffd")


@given(data=byte_strings, places=cuts, split=st.integers(0, 60))
def test_prompt_and_answer_joined_are_the_running_text(data: bytes, places: list[int], split: int) -> None:
    """Wherever the prompt ends, in the middle of a character too."""
    prompt, answer = data[:split], data[split:]
    text = "".join(streamed(cut(answer, places), cut(prompt, places)))
    running = data.decode(errors="replace")
    whole = prompt.decode(errors="replace")
    complete = whole.removesuffix("\ufffd") if not prompt.endswith("\ufffd".encode()) else whole
    assert running in (complete + text, whole + text)


@given(data=byte_strings, places=cuts, groups=st.lists(st.integers(1, 4), max_size=20))
def test_how_tokens_are_grouped_into_pushes_changes_nothing(data: bytes, places: list[int], groups: list[int]) -> None:
    world = World(cut(data, places))
    grouped, single = Detokenizer(world), Detokenizer(world)
    position, text = 0, ""
    for size in [*groups, len(world.ids)]:
        text += grouped.push(world.ids[position : position + size])
        position += size
    assert text == "".join(single.push([token_id]) for token_id in world.ids)
    assert grouped.flush() == single.flush()
    assert grouped.covered(10**9) == single.covered(10**9) == len(world.ids)


class TestHalfCharacters:
    """Bytes wait until they form a character, or are sure not to."""

    def test_an_emoji_of_four_tokens_comes_at_once(self) -> None:
        assert streamed([b"\xf0", b"\x9f", b"\x98", b"\x80"]) == ["", "", "", "😀", ""]

    def test_bytes_that_cannot_go_on_are_replaced_when_that_is_known(self) -> None:
        assert streamed([b"\xf0\x9f", b"a"]) == ["", "\ufffda", ""]

    def test_bytes_left_at_the_end_are_one_replacement(self) -> None:
        assert streamed([b"a\xf0\x9f\x98"]) == ["a", "\ufffd"]

    def test_nothing_left_nothing_flushed(self) -> None:
        assert streamed([b"a", b""]) == ["a", "", ""]


class TestPromptInMidCharacter:
    """A prompt given as ids may end anywhere."""

    def test_the_answer_that_completes_the_character_has_it(self) -> None:
        assert streamed([b"\x98\x80!"], [b"x", b"\xf0\x9f"]) == ["😀!", ""]

    def test_a_character_that_is_not_completed_stays_the_prompts(self) -> None:
        assert streamed([b"a"], [b"\xf0\x9f"]) == ["a", ""]
        assert streamed([b"\x98", b"a"], [b"\xf0\x9f"]) == ["", "a", ""]
        assert streamed([b"\x98"], [b"\xf0\x9f"]) == ["", ""]
        assert streamed([], [b"\xf0\x9f"]) == [""]

    def test_a_genuine_replacement_character_is_kept(self) -> None:
        assert streamed([b"\xbd"], [b"\xef\xbf"]) == ["\ufffd", ""]

    def test_the_prompts_invalid_bytes_are_not_taken_for_an_unfinished_character(self) -> None:
        assert streamed([b"\x80"], [b"\xff\xfe"]) == ["\ufffd", ""]

    def test_only_the_prompts_last_bytes_matter(self) -> None:
        assert streamed([b"\x80"], [b"\xf0\x9f\x98", b"\xf0\x9f\x98"]) == ["😀", ""]


class TestSpaces:
    """SentencePiece puts a space before a text, and its decoder takes it away."""

    def test_the_first_words_space_stays_when_text_came_before(self) -> None:
        assert streamed([b" three", b" four"], [b" one two"], adds_space=True) == [" three", " four", ""]

    def test_a_text_that_begins_here_loses_the_dummy_space_once(self) -> None:
        assert streamed([b"", b" ", b" a"], [b""], adds_space=True) == ["", "", " a", ""]

    def test_tokenizers_that_add_no_space_lose_none(self) -> None:
        assert streamed([b" a"]) == [" a", ""]

    def test_decoding_ids_gives_the_text_back(self) -> None:
        world = World([b"", b" Hello", b" world"], adds_space=True)
        assert decode(world, world.ids) == "Hello world"


class TestTokens:
    """Which token has which part of the text."""

    def test_the_first_token_of_a_character_has_it(self) -> None:
        world = World([b"a\xf0\x9f", b"\x98\x80b", b"", b"c"])
        detokenizer = Detokenizer(world)
        covered = []
        for token_id in world.ids:
            detokenizer.push([token_id])
            covered.append(detokenizer.covered(detokenizer.num_chars))
        assert covered == [0, 2, 3, 4]
        assert [detokenizer.token_text(i) for i in world.ids] == ["a😀", "b", "", "c"]
        assert [detokenizer.token_start(i) for i in world.ids] == [0, 2, 3, 3]

    @pytest.mark.parametrize(("num_chars", "covered"), [(0, 0), (1, 0), (2, 1), (3, 3), (4, 4)])
    def test_a_cut_covers_the_tokens_wholly_before_it(self, num_chars: int, covered: int) -> None:
        world = World([b"a\xf0\x9f", b"\x98\x80b", b"", b"c"])
        detokenizer = Detokenizer(world)
        detokenizer.push(world.ids)
        assert detokenizer.covered(num_chars) == covered

    @given(data=byte_strings, places=cuts, prompt=st.binary(max_size=5), adds_space=st.booleans())
    def test_tokens_texts_joined_are_the_text(
        self, data: bytes, places: list[int], prompt: bytes, adds_space: bool
    ) -> None:
        world = World([prompt, *cut(data, places)], adds_space)
        detokenizer = Detokenizer(world, [0])
        text = ""
        for token_id in world.ids[1:]:
            text += detokenizer.push([token_id])
            covered = detokenizer.covered(detokenizer.num_chars)
            joined = "".join(detokenizer.token_text(i) for i in range(covered))
            assert text.startswith(joined)
            assert len(text) == detokenizer.num_chars
        text += detokenizer.flush()
        count = len(world.pieces) - 1
        assert detokenizer.num_tokens == detokenizer.covered(len(text)) == count
        assert "".join(detokenizer.token_text(i) for i in range(count)) == text
        starts = [detokenizer.token_start(i) for i in range(count)]
        assert starts == [len("".join(detokenizer.token_text(j) for j in range(i))) for i in range(count)]
