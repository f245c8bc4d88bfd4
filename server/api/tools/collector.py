"""From readers of single calls to the numbered parts of an answer's calls. Shared by the families' parsers."""

from collections.abc import Callable

from server.api.tools.calls import CallDelta, Parsed
from server.api.tools.reader import CallReader


class Collector:
    """Reads one call after the other. A call is told of when its name and the beginning of its arguments are known."""

    def __init__(self, new_id: Callable[[], str], *, needs_arguments: bool = False) -> None:
        """needs_arguments: an object without any is no call."""
        self.count = 0
        self.reader: CallReader | None = None
        self._new_id = new_id
        self._needs_arguments = needs_arguments
        self._told = False

    def begin(self) -> None:
        """A call may begin here."""
        self.reader, self._told = CallReader(), False

    def feed(self, text: str, parsed: Parsed) -> str:
        """Text of the call that was begun. What is left when it is complete or proves to be none; then reader is None.

        What proves to be none is content.
        """
        assert self.reader is not None, "no call was begun"
        reader = self.reader
        rest = reader.push(text)
        if reader.name is not None and reader.has_arguments:
            self._tell(reader, parsed)
        if reader.done or reader.broken:
            self._end(reader, parsed)
        return rest

    def _tell(self, reader: CallReader, parsed: Parsed) -> None:
        if not self._told:
            parsed.calls.append(CallDelta(self.count, id=self._new_id(), name=reader.name))
            self._told = True
            self.count += 1
        if arguments := reader.take():
            parsed.calls.append(CallDelta(self.count - 1, arguments))

    def _end(self, reader: CallReader, parsed: Parsed) -> None:
        self.reader = None
        if self._told:
            return
        if reader.broken or self._needs_arguments:
            parsed.text += reader.raw
            return
        self._tell(reader, parsed)
        parsed.calls.append(CallDelta(self.count - 1, "{}"))


def held_back(text: str, markers: tuple[str, ...]) -> int:
    """Characters at the end of a text that may be the beginning of a marker, and the space before them."""
    for length in range(min(len(text), max(map(len, markers)) - 1), 0, -1):
        if any(marker.startswith(text[-length:]) for marker in markers):
            break
    else:
        length = 0
    return len(text) - len(text[: len(text) - length].rstrip())
