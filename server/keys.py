"""Who may come in: the keys that open the server, each with its owner's name and limits. Re-read when told to.

Knows files and the forms in which a header carries a key; knows no routes and no HTTP library.
"""

import base64
import binascii
import hmac
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from server.config import ServerConfig

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
FLAG_OWNER = "default"  # the name of the key in --api-key


class KeyFileError(Exception):
    """The server can't have these keys. The message is one line for the user, and holds no key."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one owner may hold in the waiting line, None: no limit of their own. weight: share of tokens under load."""

    max_waiting_requests: int | None = None
    max_waiting_tokens: int | None = None
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Key:
    """One key. Several may have one name, so that a new one can be handed out before the old one goes."""

    name: str
    secret: bytes
    limits: KeyLimits = KeyLimits()


def read_keys(config: ServerConfig) -> tuple[Key, ...]:
    """Every key that opens the server; () for a server that is open. Raises KeyFileError.

    A file with keys that has none is a mistake, and not an open door.
    """
    keys = [] if config.api_key is None else [_checked(FLAG_OWNER, config.api_key, KeyLimits())]
    if config.api_key_file is not None:
        keys += _keys_in(config.api_key_file)
    _check_owners(keys)
    return tuple(keys)


class KeyRing:
    """The keys as `read` gave them last. Empty: the server is open.

    What `read` raises goes through; after that, the keys are still those of before.
    """

    def __init__(self, read: Callable[[], tuple[Key, ...]]) -> None:
        self._read = read
        self._keys = read()

    def __len__(self) -> int:
        return len(self._keys)

    def reload(self) -> None:
        """Read them again. Requests that are under way are not touched."""
        self._keys = self._read()

    def find(self, headers: Mapping[str, str]) -> Key | None:
        """The key that a request carries: as Bearer token, as x-api-key, or as password of Basic."""
        given = [each.encode("latin-1", "replace") for each in _given(headers)]
        # all are compared, each in constant time, so that the time taken says nothing about them
        found = [key for key in self._keys for each in given if hmac.compare_digest(each, key.secret)]
        return found[0] if found else None


def _given(headers: Mapping[str, str]) -> Iterator[str]:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield value.strip()
    elif scheme.lower() == "basic":
        yield from _password(value.strip())
    if "x-api-key" in headers:
        yield headers["x-api-key"].strip()


def _password(encoded: str) -> Iterator[str]:
    try:
        _, colon, password = base64.b64decode(encoded, validate=True).decode("latin-1").partition(":")
    except (binascii.Error, ValueError):
        return
    if colon:
        yield password


def _keys_in(path: Path) -> list[Key]:
    where = f"--api-key-file (KVELL_API_KEY_FILE) {os.fspath(path)}"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise KeyFileError(f"can't read {where}: {reason}") from None
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    keys = [_in_line(line, number, where) for number, line in numbered if line and not line.startswith("#")]
    if not keys:
        raise KeyFileError(f"{where} has no key")
    return keys


def _in_line(line: str, number: int, where: str) -> Key:
    """`name: key limit=value ...`, or a key alone, whose owner is called after the line."""
    try:
        named = re.fullmatch(r"([^\s:]+):(?:\s+(.*))?", line)
        name, rest = (named[1], named[2] or "") if named else (f"line-{number}", line)
        if not NAME.fullmatch(name):
            raise KeyFileError("a name has 1 to 64 letters, digits, '.', '_' or '-'")
        secret, *limits = rest.split() or [""]
        return _checked(name, secret, _limits(limits))
    except KeyFileError as error:
        raise KeyFileError(f"{where}, line {number}: {error}") from None


def _limits(words: list[str]) -> KeyLimits:
    known = {field.name.replace("_", "-"): field.name for field in fields(KeyLimits)}
    values = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in known:
            # the word is not shown: where the colon was forgotten, it is the key
            raise KeyFileError(
                f"what follows the key are limits, as weight=2; known: {', '.join(known)}; "
                "a name before the key ends with ':'"
            )
        if not re.fullmatch(r"[0-9]{1,12}", text) or (name == "weight" and not 1 <= int(text) <= 1000):
            allowed = "a whole number" + " of 1 to 1000" * (name == "weight")
            raise KeyFileError(f"{name} is {text[:40]!r}; allowed: {allowed}")
        values[known[name]] = int(text)
    return KeyLimits(**values)


def _checked(name: str, secret: str, limits: KeyLimits) -> Key:
    # a header can carry no others, and a key that no request can have locks everybody out
    if not secret or not secret.isascii() or not secret.isprintable() or secret != secret.strip():
        raise KeyFileError("an API key may have printable ASCII characters only, and no space at its ends")
    return Key(name, secret.encode(), limits)


def _check_owners(keys: list[Key]) -> None:
    limits: dict[str, KeyLimits] = {}
    owners: dict[bytes, str] = {}
    for key in keys:
        if (owner := owners.setdefault(key.secret, key.name)) != key.name:
            raise KeyFileError(f"{owner!r} and {key.name!r} have the same key; a key has one owner")
        if limits.setdefault(key.name, key.limits) != key.limits:
            raise KeyFileError(f"the keys of {key.name!r} have different limits; the limits are the owner's")
