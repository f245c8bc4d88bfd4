"""The model's tokens as bytes, for grammars. Opened in the engine process when the first constrained request comes.

Knows tokenizers' faces; knows no requests.
"""

from dataclasses import dataclass
from pathlib import Path

from llguidance import LLTokenizer, TokenizerWrapper

from model.checkpoint.source import open_checkpoint
from model.tokenizer.base import Tokenizer
from model.tokenizer.open import open_tokenizer


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """tokens: a trie of all tokens' bytes. end_ids end an answer when its grammar is satisfied, and only then."""

    tokens: LLTokenizer
    end_ids: frozenset[int]

    @property
    def mask_words(self) -> int:
        """32-bit words of a mask."""
        return -(-self.tokens.vocab_size // 32)


class _Tokens:
    """What llguidance reads of a tokenizer.

    It would ask it to tokenize what a grammar forces, and then force those very tokens. Given none, it lets the model
    choose among the tokens that spell the same.
    """

    def __init__(self, tokenizer: Tokenizer, end_id: int) -> None:
        self.bos_token_id = tokenizer.bos_id
        self.eos_token_id = end_id
        names = {token_id: name for name, token_id in tokenizer.special_tokens.items()}
        self.special_token_ids = sorted(names)
        self.tokens = [
            names[token_id].encode() if token_id in names else tokenizer.piece(token_id)
            for token_id in range(tokenizer.vocab_size)
        ]

    def __call__(self, text: bytes) -> list[int]:
        return []


def vocabulary_of(tokenizer: Tokenizer, end_ids: frozenset[int]) -> Vocabulary:
    """end_ids: at least one."""
    ends = sorted(end_ids)
    wrapped = TokenizerWrapper(_Tokens(tokenizer, ends[0]))
    return Vocabulary(LLTokenizer(wrapped, eos_token=ends), end_ids)


def open_vocabulary(path: Path) -> Vocabulary | None:
    """The vocabulary of the checkpoint at `path`; None where no token ends an answer. Raises CheckpointError."""
    checkpoint = open_checkpoint(path)
    tokenizer = open_tokenizer(checkpoint)
    end_ids = frozenset(i for i in checkpoint.eos_ids | tokenizer.eos_ids if i < tokenizer.vocab_size)
    return vocabulary_of(tokenizer, end_ids) if end_ids else None
