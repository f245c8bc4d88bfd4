"""The one face of every tokenizer. Text becomes ids, ids become bytes; bytes become text in the detokenizer."""

from typing import Protocol


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

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        """Ids of plain text: special-token text typed by a user is spelled out as text.

        add_bos puts BOS first if the tokenizer's settings say that prompts begin with it (adds_bos).
        """
        ...

    def encode_template(self, text: str, *, literal_mark: str | None = None) -> list[int]:
        """Ids of a rendered chat template, whose special tokens count. Adds no BOS: the template wrote it or not.

        literal_mark: a character that the renderer put inside user-typed special-token text to break it up;
        it is removed from the plain pieces before they are encoded.
        """
        ...

    def piece(self, token_id: int) -> bytes:
        """The exact bytes this token adds to a running text; b"" for special (control) tokens."""
        ...

    def name(self, token_id: int) -> str:
        """The token as a person reads it, special tokens by their name; invalid bytes as U+FFFD."""
        ...

    def special_id(self, text: str) -> int | None:
        """The id of a special token by its exact text."""
        ...
