"""Calls between tags, as Hermes, Qwen and SmolLM2 write them.

    <tool_call>
    {"name": "weather", "arguments": {"city": "Ulm"}}
    </tool_call>

Several calls follow one another; some models put an array of calls between one pair of tags.
"""

from collections.abc import Callable

from server.api.tools.calls import Parsed
from server.api.tools.collector import Collector, held_back
from server.api.tools.reader import SPACE

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesParser:
    """Text outside the tags is content, but for the space around them."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._collector = Collector(new_id)
        self._buffer = ""
        self._step: Callable[[Parsed], bool] = self._text

    def push(self, text: str) -> Parsed:
        """More text of the answer."""
        self._buffer += text
        parsed = Parsed()
        while self._buffer and self._step(parsed):
            pass
        return parsed

    def flush(self) -> Parsed:
        """The answer has ended."""
        parsed = Parsed()
        if self._step == self._text and not (self._collector.count and self._buffer.isspace()):
            parsed.text = self._buffer
        self._buffer = ""
        return parsed

    # each step looks at the buffer, takes what it can and says whether to look again

    def _text(self, parsed: Parsed) -> bool:
        before, tag, after = self._buffer.partition(OPEN)
        if tag:
            parsed.text += before.rstrip()
            self._buffer, self._step = after, self._inside
            return True
        free = len(self._buffer) - held_back(self._buffer, (OPEN,))
        parsed.text += self._buffer[:free]
        self._buffer = self._buffer[free:]
        return False

    def _inside(self, parsed: Parsed) -> bool:
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
            self._step = self._inside
        elif not CLOSE.startswith(self._buffer):
            self._step = self._text  # the tag is missing
        else:
            return False
        return True
