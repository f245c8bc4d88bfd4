"""The one face of every tokenizer. Text becomes ids, ids become bytes; bytes become text in the detokenizer."""

from typing import Protocol

from model.errors import CheckpointError


class TokenizerError(CheckpointError):
    """A tokenizer that cannot be read or rebuilt. One clear line, like every CheckpointError."""


class InvalidText(ValueError):
    """Text that has no UTF-8 form, so no ids: a lone surrogate (JSON's \\ud800 can carry one). For a 400."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the text has a lone surrogate (half a UTF-16 pair) at character {position}")
        self.position = position


class Tokenizer(Protocol):
    """Ids are those of the model's original tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end an answer as far as the tokenizer's own files say. The checkpoint may add more."""
        ...

    @property
    def adds_bos(self) -> bool:
        """Whether a plain prompt begins with BOS."""
        ...

    @property
    def adds_space(self) -> bool:
        """Whether encoding puts a space before the text (SentencePiece's dummy prefix). Decoding takes it away."""
        ...

    @property
    def special_tokens(self) -> dict[str, int]:
        """Every special (control) token by its exact text."""
        ...

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        """Ids of plain text: special-token text typed by a user is spelled out as text. Raises InvalidText.

        add_bos puts BOS first if the tokenizer's settings say that prompts begin with it (adds_bos).
        """
        ...

    def encode_template(self, text: str, *, literal_mark: str | None = None) -> list[int]:
        """Ids of a rendered chat template, whose special tokens count. Adds no BOS: the template wrote it or not.

        literal_mark: a character that the renderer put inside or before user-typed special-token text, to say that
        it is text; it is removed before the text is encoded. Raises InvalidText.
        """
        ...

    def piece(self, token_id: int) -> bytes:
        """The exact bytes this token adds to a running text; b"" for special (control) and unknown ids."""
        ...

    def name(self, token_id: int) -> str:
        """The token as a person reads it, special tokens by their name; invalid bytes as U+FFFD."""
        ...

    def special_id(self, text: str) -> int | None:
        """The id of a special token by its exact text."""
        ...


def check_text(text: str) -> None:
    """Raise InvalidText unless the text can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidText(error.start) from None
