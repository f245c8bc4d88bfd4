"""A tokenizer small enough to read: a token per byte, a few longer pieces, four special tokens."""

from collections.abc import Sequence
from datetime import datetime

from model.tokenizer.chat import ChatTemplate

SPECIAL = {"<bos>": 256, "<eos>": 257, "<|turn|>": 258, "<|end|>": 259}
PIECES = [" the", "lo", "Hel", " wor", "ld", "\n\n", "🎉", "ab", "abc", "bc"]
FIRST_PIECE = 260
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role == 'tool' and loop.first %}{{ raise_exception('a tool can not begin') }}{% endif %}"
    "<|turn|>{{ message.role }}\n{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


class TinyTokenizer:
    """Bytes 0 to 255 are themselves; encoding knows no longer pieces, so that tests can predict ids."""

    vocab_size = FIRST_PIECE + len(PIECES)
    eos_ids = frozenset({257})
    adds_space = False
    special_tokens = SPECIAL

    def __init__(self, *, bos_id: int | None = 256, adds_bos: bool = True) -> None:
        self.bos_id = bos_id
        self.adds_bos = adds_bos and bos_id is not None

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        bos = [self.bos_id] if add_bos and self.adds_bos and self.bos_id is not None else []
        return bos + list(text.encode())

    def encode_template(self, text: str, *, literal_mark: str | None = None) -> list[int]:
        ids: list[int] = []
        while text:
            special = next((name for name in SPECIAL if text.startswith(name)), None)
            if special:
                ids.append(SPECIAL[special])
                text = text.removeprefix(special)
            else:
                ids += [] if text[0] == literal_mark else list(text[0].encode())
                text = text[1:]
        return ids

    def piece(self, token_id: int) -> bytes:
        if token_id < 256:
            return bytes([token_id])
        return b"" if token_id < FIRST_PIECE else PIECES[token_id - FIRST_PIECE].encode()

    def name(self, token_id: int) -> str:
        names = {number: name for name, number in SPECIAL.items()}
        return names.get(token_id) or self.piece(token_id).decode("utf-8", "replace")

    def special_id(self, text: str) -> int | None:
        return SPECIAL.get(text)


def piece_id(text: str) -> int:
    """The id of one of PIECES."""
    return FIRST_PIECE + PIECES.index(text)


def ids_of(*parts: str | int) -> tuple[int, ...]:
    """Ids of texts (by their bytes) and of ids as they are."""
    return tuple(i for part in parts for i in ([part] if isinstance(part, int) else part.encode()))


def tiny_template() -> ChatTemplate:
    """A template in the manner of ChatML."""
    return ChatTemplate(
        TEMPLATE,
        special_tokens=SPECIAL,
        named_tokens={"bos_token": "<bos>", "eos_token": "<eos>"},
        now=lambda: datetime(2026, 1, 1),
    )


def text_of(ids: Sequence[int]) -> str:
    """What ids read as, in one go."""
    return b"".join(TinyTokenizer().piece(i) for i in ids).decode("utf-8", "replace")
