"""From token ids to text, bit by bit: no half characters, no spaces lost or won, nothing of the prompt.

Pieces' bytes run through an incremental UTF-8 decoder. Knows bytes and characters; knows no stop strings.
"""

import codecs
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"
_LONGEST = 4  # bytes of a UTF-8 character


class Pieces(Protocol):
    """What is needed of a tokenizer."""

    @property
    def adds_space(self) -> bool: ...

    def piece(self, token_id: int) -> bytes: ...


class Revealed:
    """A tokenizer's pieces, some of its special tokens among them by these texts, which else add nothing to a text."""

    def __init__(self, tokenizer: Pieces, texts: Mapping[int, bytes]) -> None:
        self.adds_space = tokenizer.adds_space
        self._piece = tokenizer.piece
        self._texts = texts

    def piece(self, token_id: int) -> bytes:
        return self._texts.get(token_id) or self._piece(token_id)


class Detokenizer:
    """The text of one answer. The prompt's text and this text, joined, are the running text.

    If the prompt ends in the middle of a character (a prompt given as ids can), the character belongs to the answer
    that completes it; if the answer does not complete it, its U+FFFD belongs to the prompt and is not emitted.

    A token's text is known once its last byte has become a character. When several tokens make up one character, the
    first of them has it as its text and the others have "", so that tokens' texts joined are the text, and a cut
    between two tokens never falls inside a character. Example: bytes F0 9F | 98 80 61 are the texts "😀" and "a".
    """

    def __init__(self, tokenizer: Pieces, prompt_ids: Sequence[int] = ()) -> None:
        self._piece = tokenizer.piece
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        tail = _tail(tokenizer, prompt_ids)
        self._decoder.decode(tail)
        self._owed = self._decoder.getstate()[0]  # the prompt's unfinished character and what continued it
        # SentencePiece put a space before a text that begins here; its own decoder takes it away.
        self._strip_space = tokenizer.adds_space and not tail
        self._texts: list[str] = []  # per token whose text is known
        self._ends: list[int] = []  # where that text ends, in characters of the answer
        self._num_waiting = 0  # tokens since then
        self._begun = ""  # text that the first waiting token has completed so far

    @property
    def num_tokens(self) -> int:
        """Tokens pushed so far."""
        return len(self._ends) + self._num_waiting

    @property
    def num_chars(self) -> int:
        """Characters emitted so far."""
        return self._num_closed_chars + len(self._begun)

    def push(self, token_ids: Sequence[int]) -> str:
        """The characters that these tokens complete."""
        return "".join([self._push(token_id) for token_id in token_ids])

    def flush(self) -> str:
        """The end of the answer: bytes that never became a character are one U+FFFD."""
        unfinished = self._decoder.getstate()[0]
        self._decoder.reset()
        text = REPLACEMENT if unfinished != self._owed else ""
        self._owed = b""
        self._close(text)
        return text

    def covered(self, num_chars: int) -> int:
        """How many tokens have their text wholly within the answer's first num_chars characters."""
        return bisect_right(self._ends, num_chars)

    def token_text(self, index: int) -> str:
        """What the index-th token (from 0) added to the text; known for every token that is covered."""
        return self._texts[index]

    def token_start(self, index: int) -> int:
        """Where the index-th token's text begins, in characters of the answer."""
        return self._ends[index - 1] if index else 0

    @property
    def _num_closed_chars(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _push(self, token_id: int) -> str:
        piece = self._piece(token_id)
        decoded = self._decoder.decode(piece)
        text = decoded[1:] if self._first_is_owed(piece, decoded) else decoded
        if self._strip_space and text:
            self._strip_space = False
            text = text.removeprefix(" ")
        head = 0
        if decoded and self._num_waiting:  # its first character is what earlier tokens waited for
            head = 1 if text is decoded else 0
            self._close(text[:head])
        self._begun += text[head:]
        self._num_waiting += 1
        if not self._decoder.getstate()[0]:
            self._close("")
        return text

    def _first_is_owed(self, piece: bytes, decoded: str) -> bool:
        """Whether the first decoded character is the U+FFFD of a character that the prompt began."""
        if not self._owed:
            return False
        owed = self._owed + piece
        self._owed = b"" if decoded else owed
        return decoded.startswith(REPLACEMENT) and not owed.startswith(REPLACEMENT.encode())

    def _close(self, text: str) -> None:
        """The waiting tokens' text is known: the first has what it began and `text`."""
        if not self._num_waiting:
            return
        self._texts += [self._begun + text] + [""] * (self._num_waiting - 1)
        self._ends += [self._num_closed_chars + len(self._texts[-self._num_waiting])] * self._num_waiting
        self._num_waiting, self._begun = 0, ""


def decode(tokenizer: Pieces, token_ids: Sequence[int]) -> str:
    """The whole text of these ids, as the original tokenizer decodes them without special tokens."""
    detokenizer = Detokenizer(tokenizer)
    return detokenizer.push(token_ids) + detokenizer.flush()


def _tail(tokenizer: Pieces, prompt_ids: Sequence[int]) -> bytes:
    """The prompt's last bytes, enough to hold a character that is not finished; b"" if the prompt has no text."""
    tail = b""
    for token_id in reversed(prompt_ids):
        if len(tail) >= _LONGEST:
            break
        tail = tokenizer.piece(token_id) + tail
    return tail
