"""The run holds what it says it holds, leaves at random, and calls nothing good that isn't."""

import asyncio
from collections import Counter
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from benchmarks import connections
from benchmarks.connections import Idlers, abort_many, abort_one, good
from tests.helpers.waiting import eventually


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STAY_S", 0.03)


GOOD: dict[str, Any] = {
    "asked": {"right": 5, "refused": 1},
    "resident_mib": {"before": 500.0, "with_idle": 560.0, "after": 510.0},
    "right_afterwards": True,
    "no_block_lost": True,
}


@pytest.mark.parametrize(
    "change",
    [
        {"asked": {"right": 5, "wrong: status 500": 1}},
        {"asked": {"refused": 5}},
        {"resident_mib": {"before": 500.0, "with_idle": 560.0, "after": 533.0}},
        {"right_afterwards": False},
        {"no_block_lost": False},
    ],
)
def test_anything_wrong_is_not_good(change: dict[str, Any]) -> None:
    assert good(deepcopy(GOOD), allowed_mib=32)
    assert not good(GOOD | change, allowed_mib=32)


class Listener:
    """A server that counts, and hangs up on the first `hangs_up` connections."""

    def __init__(self, *, hangs_up: int = 0, says: bytes = b"") -> None:
        self.accepted = 0
        self.received: list[bytes] = []
        self._hangs_up = hangs_up
        self._says = says
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._open += 1
        if self.accepted > self._hangs_up:
            writer.write(self._says)
            try:
                while part := await reader.read(4096):
                    self.received.append(part)
            except ConnectionError:
                self.received.append(b"reset")
        writer.close()
        self._open -= 1

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *how: object) -> None:
        await eventually(lambda: not self._open)
        self._server.close()
        await self._server.wait_closed()


async def test_idle_connections_that_end_are_opened_again() -> None:
    listener = Listener(hangs_up=4)
    async with listener as port:
        idlers = Idlers("127.0.0.1", port)
        async with idlers.held(10):
            while listener.accepted < 14:
                await asyncio.sleep(0)
        assert idlers.reopened == 4
        assert not idlers.writers
    assert not any(listener.received), "they say nothing"


async def test_whoever_leaves_has_asked_and_says_what_was_seen() -> None:
    listener = Listener(says=b"HTTP/1.1 200 OK\r\n")
    async with listener as port:
        seen = Counter([await abort_one("127.0.0.1", port, b'{"prompt": "a"}', Random(seed)) for seed in range(20)])
    assert set(seen) <= {"200", "nothing"}
    assert seen["200"] > 0
    assert any(b"POST /v1/completions" in part for part in listener.received)


async def test_so_many_leave_a_second() -> None:
    async with Listener() as port:
        seen = await abort_many("127.0.0.1", port, lambda: b"{}", rate=200, seconds=0.5)
    assert 50 <= sum(seen.values()) <= 150
