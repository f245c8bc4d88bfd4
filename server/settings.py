"""Every setting by name: how its text is read, what is allowed, what help says.

Flags arrive as raw strings, so that a flag and an environment variable are checked alike. Knows no dataclasses and
no command line: `server.config` makes the first of these values, `server.cli` shows the help.
"""

import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DEFAULT_MODEL = "smollm2-135m-instruct"


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


def _whole(low: int, high: int) -> Parser:
    def parse(text: str) -> int:
        # int() alone would take "1_000", " 7 " and digits of other scripts
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise ValueError(text)
        return int(text)

    return parse


def _seconds(low: float, high: float) -> Parser:
    def parse(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(text)
        return value

    return parse


def _one_of(*choices: str) -> Parser:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    return parse


def _text(text: str) -> str:
    if not text.strip() or any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError(text)
    return text


def _path(text: str) -> Path:
    try:
        return Path(_text(text)).expanduser()
    except RuntimeError as error:  # "~somebody" who has no home here
        raise ValueError(text) from error


def _origins(text: str) -> tuple[str, ...]:
    origins = tuple(part.strip() for part in text.split(","))
    if not all(re.fullmatch(r"\*|https?://[^\s/,]+", origin) for origin in origins):
        raise ValueError(text)
    return origins


def _switch(text: str) -> bool:
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


def _server(name: str, field: str, parse: Parser, allowed: str, default: str, help: str) -> Setting:
    return Setting(name, field, parse, allowed, default, help)


def _engine(name: str, field: str | None, parse: Parser, allowed: str, default: str, help: str) -> Setting:
    return Setting(name, field, parse, allowed, default, help, engine=True)


def _limit(name: str, low: int, high: int, default: str, help: str, *, field: str | None = None) -> Setting:
    return _engine(name, field or name.replace("-", "_"), _whole(low, high), f"{low} to {high}", default, help)


SETTINGS: tuple[Setting, ...] = (
    _server("model", "model", _text, "a .gguf file, a directory, hf:owner/name, a known name", DEFAULT_MODEL, "model"),
    _server("host", "host", _text, "an address or host name", "127.0.0.1", "address to listen on"),
    _server("port", "port", _whole(0, 65535), "0 to 65535", "8000", "port to listen on; 0 takes a free one"),
    _server("served-model-name", "served_model_name", _text, "any text", "the model's own", "id in /v1/models"),
    _engine("device", "device", _one_of("auto", "cpu", "cuda"), "auto, cpu, cuda", "auto", "where the model runs"),
    _engine(
        "backend",
        "backend",
        _one_of("auto", "native", "torch"),
        "auto, native, torch",
        "auto",
        "kernels to use; auto: native ones on a CPU where they can be had",
    ),
    _engine(
        "dtype",
        "dtype",
        _one_of("auto", "float32", "bfloat16", "float64"),
        "auto, float32, bfloat16, float64",
        "auto",
        "type to compute in; float64 is slow and for exact comparisons",
    ),
    _engine(
        "quantize",
        "quantize",
        _one_of("none", "int8", "int4"),
        "none, int8, int4",
        "none",
        "round full-precision weights while loading; int4 leaves the most sensitive ones in int8",
    ),
    _limit("threads", 1, 1024, "one per core", "threads of the engine"),
    _limit("max-model-len", 1, 100_000_000, "the model's own", "longest prompt and answer, in tokens"),
    _limit("max-num-seqs", 1, 4096, "64", "sequences that run at once"),
    _limit("max-num-batched-tokens", 1, 1_048_576, "512", "most tokens in one step"),
    _limit("target-inter-token-ms", 1, 60_000, "100", "gap between tokens that prompts must not exceed, in ms"),
    _limit("block-size", 1, 1024, "16", "tokens per KV cache block"),
    _engine("kv-cache-memory", "kv_cache_bytes", parse_bytes, SIZES, "a quarter of free memory", "KV cache size"),
    _engine(
        "kv-cache-dtype",
        "kv_cache_dtype",
        _one_of("auto", "bfloat16", "float32", "float64", "int8"),
        "auto, bfloat16, float32, float64, int8",
        "auto",
        "type of cached keys and values; int8: codes with a scale per token and head, in half of bfloat16's memory",
    ),
    _engine("prefix-cache", "prefix_cache", _switch, "on, off", "on", "reuse the KV of equal prompt beginnings"),
    _server(
        "max-waiting-requests",
        "max_waiting_requests",
        _whole(0, 1_000_000),
        "0 to 1000000",
        "1024",
        "requests that may wait before more are refused",
    ),
    _server(
        "max-waiting-tokens",
        "max_waiting_tokens",
        _whole(1, 10**12),
        "1 to 10^12",
        "no limit",
        "tokens, of prompts and outputs, that may wait before more are refused",
    ),
    _server(
        "default-timeout",
        "default_timeout_s",
        _seconds(0.001, 86_400),
        "0.001 to 86400 seconds",
        "none",
        "deadline of requests that bring none",
    ),
    Setting("api-key", "api_key", _text, "any text that is not empty", "none", "key that requests need", secret=True),
    _server("api-key-file", "api_key_file", _path, "path of a file", "none", "file with keys, one `name: key` a line"),
    _server("open-metrics", "open_metrics", _switch, "on, off", "off", "/metrics needs no key"),
    _server("share-prefixes", "share_prefixes", _switch, "on, off", "off", "prefix cache shared between keys"),
    _server(
        "trust-request-chat-template",
        "trust_request_chat_template",
        _switch,
        "on, off",
        "off",
        "a chat request may bring its own template",
    ),
    _server(
        "cors-origins",
        "cors_origins",
        _origins,
        "origins with commas between, or *",
        "none",
        "origins whose pages a browser lets ask this server",
    ),
    _server("tls-certfile", "tls_certfile", _path, "path of a file", "none", "certificate chain in PEM, for https"),
    _server("tls-keyfile", "tls_keyfile", _path, "path of a file", "none", "the certificate's private key in PEM"),
    _server(
        "drain-timeout",
        "drain_timeout_s",
        _seconds(0, 86_400),
        "0 to 86400 seconds",
        "30",
        "seconds that running requests get to finish after SIGTERM",
    ),
    _server(
        "engine-timeout",
        "engine_timeout_s",
        _seconds(1, 3600),
        "1 to 3600 seconds",
        "30",
        "seconds without progress after which the engine is restarted",
    ),
    _server("sse-ping", "sse_ping_s", _seconds(0.1, 3600), "0.1 to 3600 seconds", "15", "seconds between stream pings"),
    _server(
        "log-level",
        "log_level",
        _one_of("debug", "info", "warning", "error"),
        "debug, info, warning, error",
        "info",
        "least important log lines to write",
    ),
)
