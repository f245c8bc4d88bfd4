"""The rule is stated once more, slowly, and the matcher compared with it on every way of cutting a text."""

from collections.abc import Sequence
from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.engine.stops import StopMatcher

texts = st.text("ab", max_size=24)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


def ended(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text before the match that completes first (the one that starts earliest, if several), and that match."""
    for end in range(len(text) + 1):
        matches = [stop for stop in stops if text[:end].endswith(stop)]
        if matches:
            longest = max(matches, key=len)
            return text[: end - len(longest)], longest
    return text, None


def pushed(pieces: Sequence[str], stops: Sequence[str]) -> tuple[list[str], StopMatcher]:
    """The deltas of a text that comes in pieces, flush included, and the matcher."""
    matcher, deltas = StopMatcher(stops), []
    for piece in pieces:
        delta, stopped = matcher.push(piece)
        deltas.append(delta)
        if stopped:
            return deltas, matcher
    return [*deltas, matcher.flush()], matcher


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted(min(place, len(text)) for place in places)
    return [text[i:j] for i, j in zip([0, *edges], [*edges, len(text)], strict=True)]


@given(text=texts, stops=stop_lists, places=st.lists(st.integers(0, 24), max_size=10))
def test_any_way_of_cutting_the_text_gives_what_the_rule_says(text: str, stops: list[str], places: list[int]) -> None:
    deltas, matcher = pushed(cut(text, places), stops)
    assert ("".join(deltas), matcher.matched) == ended(text, stops)
    assert matcher.num_emitted == len("".join(deltas))


@given(text=texts, stops=stop_lists)
def test_exactly_the_longest_possible_beginning_of_a_stop_is_held_back(text: str, stops: list[str]) -> None:
    matcher, emitted = StopMatcher(stops), ""
    for end in range(1, len(text) + 1):
        delta, stopped = matcher.push(text[end - 1])
        emitted += delta
        if stopped:
            return
        beginnings = {stop[:length] for stop in stops for length in range(1, len(stop))}
        held = max((length for length in range(end + 1) if text[end - length : end] in beginnings), default=0)
        assert emitted == text[: end - held]


class TestExamples:
    """The rule, case by case."""

    def test_a_stop_over_several_pieces_leaks_nothing(self) -> None:
        deltas, matcher = pushed(["Hel", "lo", " wor", "ld"], ["lo w"])
        assert deltas == ["He", "l", ""]
        assert matcher.matched == "lo w"

    def test_a_false_beginning_is_let_go_at_once(self) -> None:
        assert pushed(["a\n", "\n", "b"], ["\n\n\n"])[0] == ["a", "", "\n\nb", ""]

    def test_a_stop_at_the_very_beginning_leaves_nothing(self) -> None:
        assert pushed(["The", " end"], ["The"])[0] == [""]

    def test_text_behind_the_stop_in_the_same_piece_is_dropped(self) -> None:
        assert pushed(["one STOP two"], [" STOP"])[0] == ["one"]

    def test_the_match_that_completes_first_wins(self) -> None:
        assert ended("xabcd", ["abcd", "bc"]) == ("xa", "bc")
        assert pushed(["xabcd"], ["abcd", "bc"])[0] == ["xa"]

    def test_of_matches_that_complete_together_the_earliest_start_wins(self) -> None:
        assert pushed(["xabc"], ["c", "abc", "bc"])[0] == ["x"]

    def test_a_beginning_inside_a_beginning_is_not_lost(self) -> None:
        assert pushed(list("aabaac"), ["aabaaa", "baac"])[0] == ["", "", "", "", "", "aa"]

    def test_a_held_back_end_comes_with_the_flush(self) -> None:
        assert pushed(["wait", " for"], ["for ever"])[0] == ["wait", " ", "for"]

    def test_without_stops_everything_passes(self) -> None:
        assert pushed(["a", "", "b"], [])[0] == ["a", "", "b", ""]

    def test_characters_beyond_the_first_plane_count_as_one(self) -> None:
        deltas, matcher = pushed(["a👍", "🏽b"], ["👍🏽"])
        assert ("".join(deltas), matcher.num_emitted) == ("a", 1)


def test_a_copy_of_a_fresh_matcher_has_its_own_text() -> None:
    """Choices of one request copy one matcher, whose tables are shared."""
    original = StopMatcher(["ab"])
    one, other = copy(original), copy(original)
    assert one.push("xa") == ("x", False)
    assert other.push("b") == ("b", False)
    assert one.push("b") == ("", True)
    assert other.matched is None


def test_an_empty_stop_string_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="empty stop"):
        StopMatcher(["a", ""])


def test_text_after_the_stop_is_our_mistake() -> None:
    matcher = StopMatcher(["a"])
    matcher.push("a")
    with pytest.raises(AssertionError, match="after the stop"):
        matcher.push("b")


def test_no_character_is_looked_at_twice() -> None:
    """A long stop that nearly matches, over and over, in pieces of one character: the steps are counted, not timed."""
    stop = "a" * 500 + "b"
    matcher = StopMatcher([stop])
    automaton = matcher._automaton
    assert automaton is not None
    steps, step = 0, automaton.step

    def counted(state: int, character: str) -> int:
        nonlocal steps
        steps += 1
        return step(state, character)

    automaton.step = counted  # type: ignore[method-assign]
    for _ in range(3000):
        matcher.push("a")
    assert steps == 3000
    assert matcher.num_emitted == 2500


@given(text=texts, stops=stop_lists, places=st.lists(st.integers(0, 24), max_size=10))
def test_the_stop_string_can_be_part_of_the_text(text: str, stops: list[str], places: list[int]) -> None:
    matcher, said = StopMatcher(stops, include=True), ""
    for piece in cut(text, places):
        delta, stopped = matcher.push(piece)
        said += delta
        if stopped:
            break
    else:
        said += matcher.flush()
    before, match = ended(text, stops)
    assert (said, matcher.matched) == (before + (match or ""), match)
    assert matcher.num_emitted == len(said)
