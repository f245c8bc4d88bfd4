"""What parsers share whose calls stand behind a mark in the text: the text before it, and its end. Knows no format."""

from collections.abc import Callable

from server.api.tools.calls import Parsed
from server.api.tools.collector import Collector, held_back


class MarkedParser:
    """Text outside the calls is content, but for the space around them.

    mark begins a call; `_behind_mark` is the step that follows it. A step looks at the buffer, takes what it can and
    says whether to look again.
    """

    mark: str

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

    def _text(self, parsed: Parsed) -> bool:
        before, mark, after = self._buffer.partition(self.mark)
        if mark:
            parsed.text += before.rstrip()
            self._buffer, self._step = after, self._behind_mark
            return True
        free = len(self._buffer) - held_back(self._buffer, (self.mark,))
        parsed.text += self._buffer[:free]
        self._buffer = self._buffer[free:]
        return False

    def _behind_mark(self, parsed: Parsed) -> bool:
        raise NotImplementedError
