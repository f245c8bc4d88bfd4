"""Words as the vocabulary spells them. Knows tokenizers; knows no bodies and no requests."""

from collections.abc import Iterable

from model.tokenizer.base import Tokenizer

BEFORE = ("", " ", "\n", "a")


def spellings(tokenizer: Tokenizer, word: str) -> set[tuple[int, ...]]:
    """The ids of a word as it stands at the beginning of a text, after a space, and after a line break."""
    found = {_encode(tokenizer, word), _encode(tokenizer, f" {word}")}
    return (found | {_after(tokenizer, "\n", word)}) - {()}


def last_ids(tokenizer: Tokenizer, words: Iterable[str]) -> set[int]:
    """The last token of each word as it stands at the beginning of a text, after a space, a line break or a letter."""
    tails = (_encode(tokenizer, before + word)[-1:] for word in words for before in BEFORE)
    return {token for tail in tails for token in tail}


def _after(tokenizer: Tokenizer, before: str, word: str) -> tuple[int, ...]:
    """The word's ids after another text; none if the two grow together."""
    first, both = _encode(tokenizer, before), _encode(tokenizer, before + word)
    return both[len(first) :] if both[: len(first)] == first else ()


def _encode(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_bos=False))
