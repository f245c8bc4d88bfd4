"""Work on big inputs happens on a worker thread, so that streams go on meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")

INLINE_BYTES = 16 * 1024  # a few milliseconds of parsing, rendering and tokenising


async def run_sized(size_bytes: int, work: Callable[[], T], worker: Executor) -> T:
    """work(), here when its input is small, else on `worker`. Tokenisers let go of the interpreter lock meanwhile."""
    if size_bytes <= INLINE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(worker, work)
