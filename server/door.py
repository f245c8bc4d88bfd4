"""What must be in order before a model is fetched: the address to listen on, and the certificate to show there.

Raises DoorError, one clear line. Knows sockets and files; knows no HTTP.
"""

import socket
import ssl

from server.config import ServerConfig

BACKLOG = 2048


class DoorError(Exception):
    """The server can't listen there, or not with this certificate. The message is one line for the user."""


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


def url(listener: socket.socket, *, tls: bool = False) -> str:
    """Where a client on this machine finds it: an address, also when it listens on all of them."""
    host, port = listener.getsockname()[:2]
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'https' if tls else 'http'}://{f'[{local}]' if ':' in local else local}:{port}"


def check_certificate(config: ServerConfig) -> None:
    """Both files are there, belong together and need no password, or DoorError."""
    if config.tls_certfile is None or config.tls_keyfile is None:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(config.tls_certfile, config.tls_keyfile, password=lambda: "")
    except OSError as error:  # ssl's own errors are OSErrors, too
        files = f"--tls-certfile {config.tls_certfile} with --tls-keyfile {config.tls_keyfile}"
        raise DoorError(f"can't use {files}: {error.strerror or error}") from None
