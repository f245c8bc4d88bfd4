"""What a connection may cost before it has asked anything: their number, slow heads, heads that are no HTTP.

uvicorn's h11 protocol with limits; which request is in it, the routes decide.
"""

import asyncio
import resource

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from server.api.errors import error_body

HEAD_SECONDS = 30.0  # from a connection's, or a request's, first sign of life to the end of its head
STALL_SECONDS = 120.0  # in which a client that has something to read reads none of it
MAX_CONNECTIONS = 12_000


class Connection(H11Protocol):
    """One client's connection."""

    head_seconds = HEAD_SECONDS
    stall_seconds = STALL_SECONDS
    max_connections = MAX_CONNECTIONS
    _stall_timer: asyncio.TimerHandle | None = None
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refused in one line where there are too many already; else it has a while to say what it wants."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            message = f"{self.max_connections} connections are open; that is the limit"
            self._answer(503, b"Service Unavailable", message, code="overloaded", kind="server_error")
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Whoever sends a head byte by byte has as long as everybody else."""
        super().data_received(data)
        if self._busy:
            self._stop_waiting()
        elif self._head_timer is None and not self.transport.is_closing():
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is expected any more."""
        self._stop_waiting()
        self._forget_stall()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What can't be read as HTTP gets the API's own error."""
        message = "This is no HTTP/1.1 request, or its head is longer than 64 kB"
        self._answer(400, b"Bad Request", message, code="invalid_http", kind="invalid_request_error")

    def pause_writing(self) -> None:
        """The client doesn't keep up. It may be slow, but not stand still."""
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        """It has read nearly all."""
        self._forget_stall()
        super().resume_writing()

    def _watch_stall(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self.stall_seconds, self._end_stall, left)

    def _end_stall(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._watch_stall()
        else:
            self.transport.abort()

    def _forget_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    @property
    def _busy(self) -> bool:
        """A request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        """Who began to ask hears why; who said nothing is left without a word."""
        self._head_timer = None
        if self._busy:
            return
        if self.conn.trailing_data[0]:
            message = f"The request's head was not complete after {self.head_seconds:.0f} s, the limit"
            self._answer(408, b"Request Timeout", message, code="request_timeout", kind="invalid_request_error")
        else:
            self.transport.close()

    def _answer(self, status: int, reason: bytes, message: str, *, code: str, kind: str) -> None:
        """By hand, as there is no request that an application could answer; then hang up."""
        body = msgspec.json.encode(error_body(message, type=kind, code=code))
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
            *([("retry-after", "5")] if status == 503 else []),
        ]
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.transport.write(b"HTTP/1.1 %d %s\r\n%s\r\n" % (status, reason, head.encode()) + body)
        self.conn = h11.Connection(h11.SERVER)  # what comes now is not read
        self.transport.close()


def allow_many_files() -> None:
    """A connection is an open file: use what the system lets this process use."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
