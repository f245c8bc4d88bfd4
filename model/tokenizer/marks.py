"""Marking special-token text in what a user sent, so that the encoder can tell it from what the template wrote.

A mark is a private-use character that occurs nowhere in the input. Knows JSON-like values and special tokens' texts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from model.tokenizer.special import SpecialFinder

_PRIVATE_USE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


class Marker:
    """Two ways to mark, both understood by SpecialFinder.

    broken: inside the special text ("<" MARK "|im_end|>"). Nothing that a template does with pieces of the text makes
    it whole again, but a template that looks for the special text in a message does not find it.
    prefixed: before it (MARK "<|im_end|>"). The template finds it; cut off right behind the mark, it would count.
    """

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        self._finder = SpecialFinder(special_tokens)
        self._beginnings = {text[:end] for text in self._finder.ids for end in range(1, len(text))}
        self._longest = max(map(len, self._beginnings), default=0)

    def touches(self, values: Iterable[Any]) -> bool:
        """Whether any text in the values needs a mark."""
        return any(next(self._finder.find(text), None) or self._open_ends(text) for text in _texts(values))

    def unused_mark(self, values: Iterable[Any], template: str) -> str:
        """A private-use character that occurs in none of these."""
        used = set(template).union(*_texts(values))
        return next(chr(code) for codes in _PRIVATE_USE for code in codes if chr(code) not in used)

    def broken(self, value: Any, mark: str) -> Any:
        """The value with all its texts (keys too) marked inside."""

        def change(text: str) -> str:
            text = self._ends_marked(text, mark)
            # Breaking one may leave a shorter one whole within it, hence again until none is left.
            while starts := [found.start + 1 for found in self._finder.find(text) if found.end - found.start > 1]:
                text = _inserted(text, mark, starts)
            return self._marked_before(text, mark)  # a single character cannot be broken

        return _mapped(value, change)

    def prefixed(self, value: Any, mark: str) -> Any:
        """The value with all its texts (keys too) marked before."""
        return _mapped(value, lambda text: self._marked_before(self._ends_marked(text, mark), mark))

    def _marked_before(self, text: str, mark: str) -> str:
        return _inserted(text, mark, [found.start for found in self._finder.find(text, mark=mark)])

    def _ends_marked(self, text: str, mark: str) -> str:
        """Two texts put together may make a special token, so its beginning at the end of one is marked."""
        return _inserted(text, mark, self._open_ends(text))

    def _open_ends(self, text: str) -> list[int]:
        """Where a beginning of a special token runs into the text's end."""
        first = max(0, len(text) - self._longest)
        return [start for start in range(first, len(text)) if text[start:] in self._beginnings]


def _inserted(text: str, mark: str, positions: list[int]) -> str:
    """The text with the mark before each of these positions (ascending)."""
    return mark.join(text[i:j] for i, j in zip([0, *positions], [*positions, len(text)], strict=True))


def _texts(values: Any) -> Iterator[str]:
    """Every text in JSON-like values, keys included."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping):
        for key, value in values.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(values, Iterable):
        for value in values:
            yield from _texts(value)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of a JSON-like value with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_mapped(key, change): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(item, change) for item in value]
    return value
