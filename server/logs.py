"""One line per event for people, on standard error. Knows no HTTP; the request line is the API's."""

import logging
import sys

from server.config import LogLevel

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
CHATTY = ("httpx", "httpcore", "huggingface_hub", "urllib3", "filelock", "asyncio")


class OneLine(logging.Formatter):
    """A record is one line, whatever its message holds: a client must not be able to write lines of its own.

    Tracebacks follow on lines of their own.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def set_up_logging(level: LogLevel) -> None:
    """Root logger at `level` to standard error; uvicorn's lines the same way, but its access log off."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(FORMAT, datefmt="%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
