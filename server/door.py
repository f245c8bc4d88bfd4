"""What must be in order before a model is fetched: the address to listen on and the keys that open it.

Raises DoorError, one clear line. Knows sockets and files; knows no HTTP.
"""

import os
import socket
from pathlib import Path

from server.config import ServerConfig

BACKLOG = 2048


class DoorError(Exception):
    """The server can't listen there, or can't have these keys. The message is one line for the user."""


def bind(host: str, port: int) -> socket.socket:
    """Take the address, so that a port in use is found before minutes of fetching. Nobody can connect yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise _cannot_listen(host, port, error.strerror or str(error)) from None
    except UnicodeError:
        raise _cannot_listen(host, port, "that is no host name") from None
    return listener


def listen(listener: socket.socket) -> None:
    """Let clients connect; they wait until the server answers. Two that bound the same port part here."""
    host, port = listener.getsockname()[:2]
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _cannot_listen(host, port, error.strerror or str(error)) from None


def _cannot_listen(host: str, port: int, reason: str) -> DoorError:
    return DoorError(f"can't listen on {host} port {port}: {reason.lower()} (another one: --port, KVELL_PORT)")


def url(listener: socket.socket) -> str:
    """Where a client on this machine finds it: an address, also when it listens on all of them."""
    host, port = listener.getsockname()[:2]
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{local}]:{port}" if ":" in local else f"http://{local}:{port}"


def read_keys(config: ServerConfig) -> tuple[str, ...]:
    """Every key that opens the server; () for a server that is open. A file with keys that has none is a mistake."""
    keys = [] if config.api_key is None else [config.api_key]
    if config.api_key_file is not None:
        keys += _keys_in(config.api_key_file)
    for key in keys:
        # a header can carry no others, and a key that no request can have locks everybody out
        if not key.isascii() or not key.isprintable() or key != key.strip():
            raise DoorError("an API key may have printable ASCII characters only, and no space at its ends")
    return tuple(keys)


def _keys_in(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DoorError(f"can't read --api-key-file (KVELL_API_KEY_FILE) {path}: {reason}") from None
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        raise DoorError(f"--api-key-file (KVELL_API_KEY_FILE) {os.fspath(path)} has no key")
    return keys
