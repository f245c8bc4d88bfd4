"""Finding special-token text inside other text, and telling what the template wrote from what a user typed.

Knows texts and ids; knows no tokenizer.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """One occurrence of a special token's text: text[start:end]."""

    start: int
    end: int
    id: int


class SpecialFinder:
    """Occurrences from left to right, the longest first where several begin at one place, none overlapping."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids = {text: token_id for text, token_id in ids.items() if text}
        self._lengths: dict[str, list[int]] = {}
        for text in self.ids:
            lengths = self._lengths.setdefault(text[0], [])
            if len(text) not in lengths:
                lengths.append(len(text))
        for lengths in self._lengths.values():
            lengths.sort(reverse=True)
        # An alternation of thousands of names would be tried one by one; first letters and lengths are few.
        self._first = re.compile("[" + re.escape("".join(self._lengths)) + "]") if self._lengths else None

    def find(self, text: str, *, mark: str | None = None) -> Iterator[Found]:
        """Every special token in text but those that follow the mark directly: they were typed by a user."""
        position = 0
        while self._first is not None and (candidate := self._first.search(text, position)):
            start = candidate.start()
            length = self.length_at(text, start)
            if length == 0:
                position = start + 1
                continue
            position = start + length
            if mark is None or text[start - 1 : start] != mark:
                yield Found(start, position, self.ids[text[start:position]])

    def length_at(self, text: str, start: int) -> int:
        """Length of the longest special token that begins at this place; 0 if none does."""
        for length in self._lengths.get(text[start : start + 1], ()):
            if (candidate := text[start : start + length]) in self.ids:  # near the end, a shorter one
                return len(candidate)
        return 0

    def sections(self, text: str, *, mark: str | None = None) -> Iterator[str | int]:
        """Text and ids of special tokens by turns, in order; marks taken out, empty text left out."""
        position = 0
        for found in self.find(text, mark=mark):
            if plain := without(text[position : found.start], mark):
                yield plain
            yield found.id
            position = found.end
        if plain := without(text[position:], mark):
            yield plain


def without(text: str, mark: str | None) -> str:
    """The text with every mark taken out."""
    return text if mark is None else text.replace(mark, "")
