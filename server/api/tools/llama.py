"""Calls as Llama 3 writes them: the whole answer is one JSON object, or several with semicolons between them.

    {"name": "weather", "parameters": {"city": "Ulm"}}

Llama puts <|python_tag|> in front where it was told of an interpreter. An answer that begins otherwise has no calls.
"""

from collections.abc import Callable

from server.api.tools.calls import Parsed
from server.api.tools.collector import Collector
from server.api.tools.reader import SPACE

TAG = "<|python_tag|>"


class LlamaParser:
    """An object that has no name or no arguments is content: it is an answer in JSON."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._collector = Collector(new_id, needs_arguments=True)
        self._buffer = ""
        self._step: Callable[[Parsed], bool] = self._begin

    def push(self, text: str) -> Parsed:
        """More text of the answer."""
        self._buffer += text
        parsed = Parsed()
        while self._buffer and self._step(parsed):
            pass
        return parsed

    def flush(self) -> Parsed:
        """The answer has ended. An object that could still have become an answer in JSON is content."""
        parsed = Parsed()
        reader = self._collector.reader
        if reader is not None and not (reader.name is not None and reader.has_arguments):
            parsed.text += reader.raw
        if not self._collector.count:
            parsed.text += self._buffer
        self._buffer = ""
        return parsed

    def _begin(self, parsed: Parsed) -> bool:
        """Where a call may begin, or the next one."""
        more = bool(self._collector.count)
        start = self._buffer.lstrip(SPACE + (";," if more else ""))
        if not start or (TAG.startswith(start) and start != TAG):
            return False
        if start.startswith(TAG):
            self._buffer = start.removeprefix(TAG)
        elif start.startswith("{"):
            self._buffer, self._step = start, self._call
            self._collector.begin()
        else:
            self._step = self._text
        return bool(self._buffer)

    def _call(self, parsed: Parsed) -> bool:
        before = len(parsed.text)
        self._buffer = self._collector.feed(self._buffer, parsed)
        if self._collector.reader is None:
            self._step = self._begin if len(parsed.text) == before else self._text
        return bool(self._buffer)

    def _text(self, parsed: Parsed) -> bool:
        parsed.text += self._buffer
        self._buffer = ""
        return False
