"""How many bytes of bodies are read and prepared at once. What is more is refused by its head, and so never read.

A burst of large bodies would otherwise fill the memory, and wait while the tokeniser takes one after the other. Small
ones always pass: nobody can shut them out by large ones that come slowly. Knows numbers; reads nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

from starlette.datastructures import Headers

from server.engine.errors import TooBusy

MOST_BYTES = 2 * 2**20  # two thirds of a second of the tokeniser
SMALL_BYTES = 16 * 2**10
UNKNOWN_BYTES = 64 * 2**10  # what a body without a stated length counts as
PREPARED_PER_SECOND = 3 * 2**20  # what one tokeniser gets through, roughly


class Bodies:
    """The bodies that are on their way from the socket to the engine."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0

    @contextmanager
    def hold(self, headers: Headers) -> Iterator[None]:
        """While the body of a request with these headers is read and prepared. Raises TooBusy. One may always be."""
        declared = headers.get("content-length", "")
        num_bytes = int(declared) if declared.isdecimal() else UNKNOWN_BYTES
        num_bytes = 0 if num_bytes <= SMALL_BYTES else num_bytes
        if num_bytes and self._held_bytes and self._held_bytes + num_bytes > self._most_bytes:
            message = f"bodies of {self._held_bytes} bytes are being read; {num_bytes} more would pass the limit of "
            raise TooBusy(message + str(self._most_bytes), retry_after=ceil(self._held_bytes / PREPARED_PER_SECOND))
        self._held_bytes += num_bytes
        try:
            yield
        finally:
            self._held_bytes -= num_bytes
