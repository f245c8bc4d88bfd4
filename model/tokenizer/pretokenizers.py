"""How byte-level BPE cuts text into words before it merges, by the name that GGUF gives it (`tokenizer.ggml.pre`).

llama.cpp names each way of cutting after the first model that had it. The rules here are those of the models' own
tokenizer.json files, normalisation included, which is what "the original's ids" means. Data only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tokenizers import Regex, normalizers, pre_tokenizers


@dataclass(frozen=True, slots=True)
class Cutting:
    """One way of cutting.

    pattern         a word, as a regular expression; None is GPT-2's own, which the byte-level step has built in
    single_digits   cut off every digit first
    nfc             compose characters first (Unicode's NFC)
    whole_words     a word that is a token is that token, whatever the merges say
    adds_bos        what holds when the file does not say
    """

    pattern: str | None = None
    single_digits: bool = False
    nfc: bool = False
    whole_words: bool = False
    adds_bos: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        steps: list[pre_tokenizers.PreTokenizer] = []
        if self.single_digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        if self.pattern is not None:
            steps.append(pre_tokenizers.Split(Regex(self.pattern), behavior="isolated"))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.pattern is None))
        return pre_tokenizers.Sequence(steps)

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.nfc else None


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _by_digits(digits: str) -> str:
    """Words, numbers of so many digits, and punctuation (cl100k's rule and its variants)."""
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"


_MARKED_WORDS = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _by_case(digits: str, ending: str) -> str:
    """Words cut where small letters turn to capitals (o200k's rule and its variants)."""
    before = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{before}{_UPPER}*{_LOWER}+{ending}|{before}{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_GPT2 = Cutting()
_DIGITS = Cutting(single_digits=True)
_LLAMA3 = Cutting(_by_digits(r"\p{N}{1,3}"), whole_words=True, adds_bos=True)
_QWEN2 = Cutting(_by_digits(r"\p{N}"), nfc=True)
_O200K = Cutting(_by_case(r"\p{N}{1,3}", f"{_CONTRACTIONS}?"))

CUTTINGS: Final[Mapping[str, Cutting]] = {
    "gpt-2": _GPT2,
    "default": _GPT2,
    "olmo": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "codeshell": _DIGITS,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "smaug-bpe": Cutting(_by_digits(r"\p{N}{1,3}")),
    "qwen2": _QWEN2,
    "megrez": Cutting(_by_digits(r"\p{N}")),
    "deepseek-r1-qwen": Cutting(_by_digits(r"\p{N}"), adds_bos=True),
    "qwen35": Cutting(_MARKED_WORDS, nfc=True),
    "tekken": Cutting(_by_case(r"\p{N}", ""), whole_words=True, adds_bos=True),
    "gpt-4o": _O200K,
    "llama4": _O200K,
}
