"""Texts that tokenizers and detokenizers get wrong, and a generator of more of them. No special-token text in them."""

import random

NASTY_TEXTS: tuple[str, ...] = (
    "",
    " ",
    "  ",
    "Hello",
    " Hello",
    "  Hello  world ",
    "Hello\n\n\n\tworld\r\n\r\n",
    "def f(x):\n\t\treturn  x\n\n    y = 1\t# tab\n",
    "if (a<b) { c->d[0] += 0x1F; } // <b>bold</b> <table>",
    "don't DON'T we'll I'M you're they'Ve x'd",
    "1234567 3.14159 1,000,000 ½ ² ٣٤٥ Ⅷ 2024-01-31",
    "café naïve Ångström ﬁ ß ŒUVRE İstanbul",
    "e\u0301 a\u0308\u0323 \u1112\u1161\u11ab",  # combining marks, decomposed Hangul
    "日本語のテキスト。中文字符，한국어 텍스트",
    "مرحبا بالعالم! שלום",
    "สวัสดีชาวโลก नमस्ते दुनिया",
    "👍🏽👨‍👩‍👧‍👦🏳️‍🌈🇩🇪 family",
    "𠀀𪛖 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff",
    "\x00\x01\x07\x1b[0m\x7f\x80\x9f",
    "\u00a0\u2003\u3000\u200b\u200d\ufeff\u2028\u2029\x85\x0b\x0c",
    "\ue000\uf8ff\ufdd0\ufffe\uffff\ufffd",
    "a\u2581b \u2581 c",  # the character that SentencePiece spells spaces with
    "<0x41> <0x0A> ĠĊ Ã©",  # how vocabularies spell bytes
    "x" * 300,
    " " * 100 + "x",
    "\n" * 70 + "\t" * 70,
    "ab" * 64 + "!?" * 64,
    "https://example.com/a_b-c?d=e&f=%20#g user@example.com",
)

_ALPHABET = (
    *("a", "b", "the ", " un", "ing", "E", "é", "日", "ก", "ي", "_", "1", "23", ".", ",", "'s", "don't"),
    *(" ", "  ", "\n", "\t", "\r", "<", ">", "/", "</b>", "👍", "\u200d", "🏽", "\x00", "e\u0301", "\ufdd0"),
)


def random_texts(seed: int, count: int) -> list[str]:
    """More of the same: short pieces in random order."""
    rng = random.Random(seed)
    return ["".join(rng.choice(_ALPHABET) for _ in range(rng.randint(1, 40))) for _ in range(count)]


def long_text(num_chars: int = 100_000) -> str:
    """All of them, over and over."""
    whole = "\n".join(NASTY_TEXTS)
    return (whole * (num_chars // len(whole) + 1))[:num_chars]
