"""A setting, and the ways its text is read.

Flags arrive as raw strings, so that a flag and an environment variable are checked alike. Knows no setting by name.
"""

import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class ConfigError(ValueError):
    """A setting can't be what it was set to. The message is one line for the user."""


Parser = Callable[[str], object]  # raises ValueError


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set, by a flag or by an environment variable.

    field is the attribute it ends in, of ServerConfig or (engine True) of EngineConfig; None: it is only checked.
    default is what help shows; the value itself stands in the dataclass. A secret's value is never repeated.
    """

    name: str
    field: str | None
    parse: Parser
    allowed: str
    default: str
    help: str
    engine: bool = False
    secret: bool = False

    @property
    def flag(self) -> str:
        """`--kv-cache-memory`; the model is the command's argument instead."""
        return "MODEL" if self.name == "model" else f"--{self.name}"

    @property
    def env(self) -> str:
        """`KVELL_KV_CACHE_MEMORY`."""
        return "KVELL_" + self.name.upper().replace("-", "_")

    def read(self, text: str) -> object:
        """The value of `text`; ConfigError names the setting, the text and what is allowed."""
        try:
            return self.parse(text)
        except ValueError:
            shown = "not usable" if self.secret else f'"{_printable(text)}"'
            raise ConfigError(f"{self.flag} ({self.env}) is {shown}; allowed: {self.allowed}") from None


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def whole(low: int, high: int) -> Parser:
    def parse(text: str) -> int:
        # int() alone would take "1_000", " 7 " and digits of other scripts
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise ValueError(text)
        return int(text)

    return parse


def seconds(low: float, high: float) -> Parser:
    def parse(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(text)
        return value

    return parse


def or_off(parse: Parser) -> Parser:
    """ "off" is None."""

    def read(text: str) -> object:
        return None if text == "off" else parse(text)

    return read


def one_of(*choices: str) -> Parser:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    return parse


def any_text(text: str) -> str:
    if not text.strip() or any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError(text)
    return text


def any_path(text: str) -> Path:
    try:
        return Path(any_text(text)).expanduser()
    except RuntimeError as error:  # "~somebody" who has no home here
        raise ValueError(text) from error


def path_text(text: str) -> str:
    return str(any_path(text).absolute())


def origins(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(re.fullmatch(r"\*|https?://[^\s/,]+", part) for part in parts):
        raise ValueError(text)
    return parts


def http_address(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+(/[^\s]*)?", text):
        raise ValueError(text)
    return text


def switch(text: str) -> bool:
    words = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12} | {
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def parse_bytes(text: str) -> int:
    """A size of at least 1 MiB in bytes: "1000000000", "512MiB", "1.5 GB". ValueError when it isn't one."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", text)
    if match is None or match[2].lower() not in UNITS:
        raise ValueError(text)
    size = int(float(match[1]) * UNITS[match[2].lower()])
    if not 2**20 <= size <= 2**50:
        raise ValueError(text)
    return size


SIZES = "1MiB to 1024TiB, in bytes or with kB, MB, GB, KiB, MiB, GiB"
