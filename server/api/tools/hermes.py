"""Calls between tags, as Hermes, Qwen and SmolLM2 write them.

    <tool_call>
    {"name": "weather", "arguments": {"city": "Ulm"}}
    </tool_call>

Several calls follow one another; some models put an array of calls between one pair of tags.
"""

from server.api.tools.calls import Parsed
from server.api.tools.marked import MarkedParser
from server.api.tools.reader import SPACE

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesParser(MarkedParser):
    """A call, or an array of them, between a pair of tags."""

    mark = OPEN

    def _behind_mark(self, parsed: Parsed) -> bool:
        self._buffer = self._buffer.lstrip(SPACE + "[,")
        if self._buffer:
            self._collector.begin()
            self._step = self._call
        return bool(self._buffer)

    def _call(self, parsed: Parsed) -> bool:
        self._buffer = self._collector.feed(self._buffer, parsed)
        if self._collector.reader is None:
            self._step = self._behind
        return bool(self._buffer)

    def _behind(self, parsed: Parsed) -> bool:
        self._buffer = self._buffer.lstrip(SPACE + "]")
        if self._buffer.startswith(CLOSE):
            self._buffer, self._step = self._buffer.removeprefix(CLOSE), self._text
        elif self._buffer.startswith(","):
            self._step = self._behind_mark
        elif not CLOSE.startswith(self._buffer):
            self._step = self._text  # the tag is missing
        else:
            return False
        return True
