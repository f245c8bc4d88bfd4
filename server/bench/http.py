"""A client of HTTP/1.1 that costs little: answers are read as they arrive, heads and chunks parsed by hand.

Reads what servers of OpenAI's API send: a length, chunks, or everything until the connection ends. An answer may come
before the request's body is out, which is then not sent on. Knows no JSON and no statistics.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

READ_BYTES = 256 * 1024
HEAD_BYTES = 64 * 1024


class HTTPFailed(Exception):
    """The connection could not be made, ended early, or what came is no HTTP. One line."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is. base is the path before "/v1"."""

    host: str
    port: int
    tls: bool
    base: str

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Of "http://127.0.0.1:8000", with "/v1" behind it or not. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(url)
        base = parts.path.rstrip("/").removesuffix("/v1")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.hostname, port, parts.scheme == "https", base)


class Connection:
    """One connection, one request at a time. `reusable` says whether another may follow."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._rest = b""
        self._whole = False  # the last answer was read to its end
        self.used = False  # it has brought an answer before
        self.status = 0
        self.headers: dict[str, str] = {}

    @classmethod
    async def open(cls, address: Address) -> "Connection":
        """Raises HTTPFailed."""
        try:
            context = ssl.create_default_context() if address.tls else None
            return cls(*await asyncio.open_connection(address.host, address.port, ssl=context, limit=READ_BYTES))
        except OSError as error:
            raise HTTPFailed(f"no connection: {error.strerror or error}") from None

    @property
    def reusable(self) -> bool:
        """The answer is complete and the server keeps the connection."""
        keeps = self.headers.get("connection", "").lower() != "close" and not self._reader.at_eof()
        sent = not self._writer.transport.get_write_buffer_size()  # an early answer leaves the rest of a body unsent
        return self._whole and keeps and sent and not self._rest and not self._writer.is_closing()

    def close(self) -> None:
        """At once: what is not sent yet is dropped."""
        self._writer.transport.abort()

    def send(self, parts: Sequence[bytes]) -> None:
        """Hand over bytes, which are sent while the answer is awaited."""
        self._whole = False
        for part in parts:
            self._writer.write(part)

    async def head(self) -> int:
        """The answer's status, once its head is there. Raises HTTPFailed."""
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            if len(self._rest) > HEAD_BYTES:
                raise HTTPFailed("the answer's head does not end")
            self._rest += await self._more("before an answer")
        head, self._rest = self._rest[:end], self._rest[end + 4 :]
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise HTTPFailed(f"that is no answer in HTTP/1.1: {first[:40]!r}")
        self.status = int(rest[:3])
        named = (line.partition(":") for line in lines)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in named}
        return await self.head() if 100 <= self.status < 200 else self.status

    async def body(self) -> AsyncIterator[bytes]:
        """The answer's body, as it arrives. Raises HTTPFailed where it ends early."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            async for part in self._chunks():
                yield part
        elif (length := self.headers.get("content-length", "")).isdecimal():
            left = int(length)
            while left > 0:
                part = self._rest or await self._more("in the middle of an answer")
                taken, self._rest = part[:left], part[left:]
                left -= len(taken)
                yield taken
        else:
            while part := self._rest or await self._read():
                self._rest = b""
                yield part
        self._whole = self.used = True

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Bytes of all chunks that are there are handed out together."""
        while True:
            found: list[bytes] = []
            ended = self._take_chunks(found)
            if found:
                yield b"".join(found)
            if ended:
                return
            self._rest += await self._more("in the middle of an answer")

    def _take_chunks(self, found: list[bytes]) -> bool:
        """Move whole chunks to `found`; whether the last one was among them."""
        at = 0
        while (end := self._rest.find(b"\r\n", at)) >= 0:
            try:
                size = int(self._rest[at:end].partition(b";")[0], 16)
            except ValueError:
                raise HTTPFailed("a chunk without a length") from None
            after = end + 2 + size + 2
            if len(self._rest) < after:
                break
            if size == 0:
                self._rest = self._rest[after:]
                return True
            found.append(self._rest[end + 2 : after - 2])
            at = after
        self._rest = self._rest[at:]
        return False

    async def _more(self, where: str) -> bytes:
        part = await self._read()
        if not part:
            raise HTTPFailed(f"the connection ended {where}")
        return part

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(READ_BYTES)
        except OSError as error:
            raise HTTPFailed(f"the connection broke: {error.strerror or type(error).__name__}") from None


class Pool:
    """Connections to one server: those that are free are used again, the last one first."""

    def __init__(self, address: Address, headers: Sequence[tuple[str, str]] = ()) -> None:
        self._address = address
        named = [("host", f"{address.host}:{address.port}"), *headers]
        self._fixed = "".join(f"{name}: {value}\r\n" for name, value in named)
        self._free: list[Connection] = []

    async def take(self) -> Connection:
        """A free one that the server has not closed, or a new one. Raises HTTPFailed."""
        while self._free:
            connection = self._free.pop()
            if connection.reusable:
                return connection
            connection.close()
        return await Connection.open(self._address)

    def give_back(self, connection: Connection) -> None:
        """It is closed unless it may be used again."""
        if connection.reusable:
            self._free.append(connection)
        else:
            connection.close()

    def head(self, method: str, path: str, length: int) -> bytes:
        """The head of a request with a JSON body of so many bytes."""
        line = f"{method} {self._address.base}{path} HTTP/1.1\r\n"
        kind = f"content-type: application/json\r\ncontent-length: {length}\r\n" if length else ""
        return f"{line}{self._fixed}{kind}\r\n".encode()

    def close(self) -> None:
        """All that are free."""
        while self._free:
            self._free.pop().close()
