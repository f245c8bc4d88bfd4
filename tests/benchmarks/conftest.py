"""What the tests of the benchmarks share: a server to measure."""

from collections.abc import AsyncIterator

import pytest

from tests.helpers.tiny_http import Start, opening


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Opens a TinyServer on a free port."""
    async with opening() as open_port:
        yield open_port
