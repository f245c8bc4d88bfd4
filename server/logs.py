"""One line per event on standard error: for people, or as JSON for machines. Knows no HTTP.

A line of the log is a message and, where its record has `fields` (a mapping), these after it as name=value. In JSON
each is a member of its own, and what others write to standard error (the engine's process, native code, the
interpreter's own last words) becomes a record per line, too.
"""

import atexit
import json
import logging
import os
import sys
import threading
from datetime import UTC, datetime
from typing import TextIO

from server.config import LogFormat, LogLevel

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
CHATTY = ("httpx", "httpcore", "huggingface_hub", "urllib3", "filelock", "asyncio", "opentelemetry")
PATIENCE_SECONDS = 2.0  # for what still stands in the pipe when the process ends

said_elsewhere = logging.getLogger("kvell.stderr")


class OneLine(logging.Formatter):
    """A record is one line, whatever its message holds: a client must not be able to write lines of its own.

    Tracebacks follow on lines of their own.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        line += "".join(f" {name}={_plain(value)}" for name, value in fields_of(record).items())
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


class JsonLine(logging.Formatter):
    """A record is one JSON object, a traceback one of its members. In ASCII, so that nothing in it can end the line."""

    def format(self, record: logging.LogRecord) -> str:
        members: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in fields_of(record).items():
            members.setdefault(name, round(value, 6) if isinstance(value, float) else value)
        if record.exc_info:
            members["traceback"] = self.formatException(record.exc_info)
        return json.dumps(members, default=str)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """What the caller gave as extra={"fields": ...}."""
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, str) and value.isprintable() and not set(value) & set(' "='):
        return value
    return json.dumps(value, default=str, ensure_ascii=False)


def set_up_logging(level: LogLevel, form: LogFormat = "human") -> None:
    """Root logger at `level` to standard error; uvicorn's lines the same way, but its access log off."""
    handler = logging.StreamHandler(sys.stderr if form == "human" else _take_over_stderr())
    handler.setFormatter(OneLine(FORMAT, datefmt="%H:%M:%S") if form == "human" else JsonLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _take_over_stderr() -> TextIO:
    """Where standard error went until now. From now on what is written there, by children too, becomes records."""
    sys.stderr.flush()
    ours, theirs = os.pipe()
    original = os.dup(2)
    os.dup2(theirs, 2)
    os.close(theirs)
    reader = threading.Thread(target=_record_lines, args=(ours,), name="stderr", daemon=True)
    reader.start()
    atexit.register(_give_back_stderr, original, reader)
    return os.fdopen(os.dup(original), "w", buffering=1, encoding="ascii", errors="backslashreplace")


def _record_lines(pipe: int) -> None:
    with os.fdopen(pipe, encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            if text := line.rstrip():
                said_elsewhere.error("%s", text)


def _give_back_stderr(original: int, reader: threading.Thread) -> None:
    """At the end of the process. The pipe is at its end once the engine is gone, too."""
    sys.stderr.flush()
    os.dup2(original, 2)
    reader.join(PATIENCE_SECONDS)
