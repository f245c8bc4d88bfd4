"""Words as each model's own tokenizer.json cuts them, on one line that tells the ways of cutting apart."""

import pytest
from tokenizers import pre_tokenizers

from model.tokenizer.pieces import byte_level
from model.tokenizer.pretokenizers import CUTTINGS

TEXT = "I'LL it's 12345 fooBar e\u0301 ...\n\n\n  end"


def words(name: str, text: str) -> list[str]:
    cutting = CUTTINGS[name]
    normalizer = cutting.normalizer()
    text = normalizer.normalize_str(text) if normalizer else text
    return [byte_level(word).decode() for word, _ in cutting.pre_tokenizer().pre_tokenize_str(text)]


GPT2 = ["I", "'", "LL", " it", "'s", " 12345", " fooBar", " e", "\u0301", " ...", "\n\n\n ", " end"]
DIGITS = [
    "I",
    "'",
    "LL",
    " it",
    "'s",
    " ",
    "1",
    "2",
    "3",
    "4",
    "5",
    " fooBar",
    " e",
    "\u0301",
    " ...",
    "\n\n\n ",
    " end",
]
LLAMA3 = ["I", "'LL", " it", "'s", " ", "123", "45", " fooBar", " e", "\u0301", " ...\n\n\n", " ", " end"]
QWEN2 = ["I", "'LL", " it", "'s", " ", "1", "2", "3", "4", "5", " fooBar", " é", " ...\n\n\n", " ", " end"]
QWEN35 = QWEN2
TEKKEN = ["I", "'LL", " it", "'s", " ", *"12345", " foo", "Bar", " e\u0301", " ...\n\n\n", " ", " end"]
O200K = ["I'LL", " it's", " ", "123", "45", " foo", "Bar", " e\u0301", " ...\n\n\n", " ", " end"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, GPT2) for name in ("gpt-2", "default", "olmo")),
        *((name, DIGITS) for name in ("smollm", "starcoder", "refact", "codeshell")),
        *((name, LLAMA3) for name in ("llama-bpe", "llama3", "llama-v3", "falcon3", "smaug-bpe")),
        ("qwen2", QWEN2),
        ("qwen35", QWEN35),
        ("tekken", TEKKEN),
        *((name, O200K) for name in ("gpt-4o", "llama4")),
    ],
)
def test_words(name: str, expected: list[str]) -> None:
    assert words(name, TEXT) == expected


def test_qwen35_keeps_marks_with_their_letters_where_qwen2_does_not() -> None:
    assert words("qwen35", "นี้") == ["นี้"]
    assert words("qwen2", "นี้") == ["น", "ี้"]


@pytest.mark.parametrize("name", sorted(CUTTINGS))
@pytest.mark.parametrize("text", ["", " ", "\t\t x", "a\u00a0b", "👍🏽 日本", "\x00\n\r\n", "'s 's"])
def test_words_joined_are_the_text(name: str, text: str) -> None:
    assert "".join(words(name, text)) == text


def test_gpt2s_own_pattern_is_the_librarys() -> None:
    library = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert CUTTINGS["gpt-2"].pre_tokenizer().pre_tokenize_str(TEXT) == library.pre_tokenize_str(TEXT)
