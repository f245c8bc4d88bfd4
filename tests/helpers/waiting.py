"""Waiting for something to become true, with a deadline. Never a bare sleep."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_SECONDS = 30.0


async def eventually(condition: Callable[[], object], *, within_s: float = DEADLINE_SECONDS) -> None:
    """Let the event loop run until condition() holds; fails at the deadline."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.005)


def eventually_blocking(condition: Callable[[], object], *, within_s: float = DEADLINE_SECONDS) -> None:
    """The same without an event loop."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def open_files() -> int:
    """How many file descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))
