"""Calls as Mistral writes them: behind a mark, an array of objects, or in its later models a name and its arguments.

[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Ulm"}}]
[TOOL_CALLS]weather[ARGS]{"city": "Ulm"}[TOOL_CALLS]...
"""

import json
from collections.abc import Callable

from server.api.tools.calls import Parsed
from server.api.tools.marked import MarkedParser
from server.api.tools.reader import SPACE

MARK, ARGS = "[TOOL_CALLS]", "[ARGS]"


class MistralParser(MarkedParser):
    """Text before the mark is content."""

    mark = MARK

    def __init__(self, new_id: Callable[[], str]) -> None:
        super().__init__(new_id)
        self._named = False  # the form with [ARGS]

    def _behind_mark(self, parsed: Parsed) -> bool:
        self._buffer = self._buffer.lstrip(SPACE)
        if not self._buffer:
            return False
        self._named = self._buffer[0] not in "[{"
        self._step = self._name if self._named else self._inside
        return True

    def _name(self, parsed: Parsed) -> bool:
        """A function's name, up to its arguments; from there on it is read as the object it stands for."""
        end = self._buffer.find("{")
        if end < 0:
            return False
        name = self._buffer[:end].split("[")[0].strip()
        self._collector.begin()
        self._collector.feed(f'{{"name": {json.dumps(name)}, "arguments": ', parsed)
        self._buffer, self._step = self._buffer[end:], self._arguments
        return True

    def _arguments(self, parsed: Parsed) -> bool:
        """Up to the brace that closes them; the object's own closing brace nobody wrote."""
        reader = self._collector.reader
        assert reader is not None, "arguments without a call"
        for position, character in enumerate(self._buffer):
            if reader.between_values:
                self._buffer, self._step = self._buffer[position:], self._text
                self._collector.feed("}", parsed)
                return True
            self._collector.feed(character, parsed)
        self._buffer = ""
        return False

    def _inside(self, parsed: Parsed) -> bool:
        self._buffer = self._buffer.lstrip(SPACE + "[,")
        if self._buffer.startswith("]"):
            self._buffer, self._step = self._buffer[1:], self._text
        elif self._buffer:
            self._collector.begin()
            self._step = self._call
        return bool(self._buffer)

    def _call(self, parsed: Parsed) -> bool:
        self._buffer = self._collector.feed(self._buffer, parsed)
        if self._collector.reader is None:
            self._step = self._inside
        return bool(self._buffer)
