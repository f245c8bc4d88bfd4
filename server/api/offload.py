"""Work on big inputs happens on a worker thread, so that streams go on meanwhile."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

INLINE_BYTES = 16 * 1024  # a few milliseconds of parsing, rendering and tokenising


async def run_sized(size_bytes: int, work: Callable[[], T]) -> T:
    """work(), here when its input is small. Tokenisers let go of the interpreter lock while they work."""
    if size_bytes <= INLINE_BYTES:
        return work()
    return await asyncio.to_thread(work)
