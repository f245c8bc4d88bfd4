"""The live view's stream: what it says, what it costs while nobody looks, how it ends."""

import asyncio
import json
from typing import Any

import pytest

from server.api import live
from tests.helpers.api_world import World, make_world


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "INTERVAL_MS", 1)


class Watching:
    """One client of /live, until `leave`."""

    def __init__(self, world: World) -> None:
        self.sent: list[dict[str, Any]] = []
        self._left = asyncio.Event()
        self._changed = asyncio.Event()
        scope = {"type": "http", "method": "GET", "path": "/live", "headers": [], "query_string": b"", "state": {}}
        self.task = asyncio.create_task(world.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self._changed.set()

    async def looks(self, count: int) -> list[dict[str, Any]]:
        """The first `count` events."""
        while len(bodies := [each["body"] for each in self.sent if each.get("body")]) < count:
            self._changed.clear()
            await self._changed.wait()
        return [json.loads(body.removeprefix(b"data: ")) for body in bodies[:count]]

    async def leave(self) -> None:
        self._left.set()
        await self.task


async def test_a_look_says_how_things_stand() -> None:
    world = make_world()
    world.serving.metrics.first_token(0.25)
    watching = Watching(world)
    first, second = await watching.looks(2)
    assert first == second
    assert first == {
        "model": "tiny",
        "state": "ready",
        "running": 0,
        "waiting": 0,
        "preemptions": 0,
        "tokens_per_second": {"prompt": 0.0, "decode": 0.0},
        "time_to_first_token_seconds": 0.25,
        "groups": [],
        "picture": [{"blocks_per_cell": 1, "runs": [3, 2, 0, 5]}],
    }
    await watching.leave()


async def test_the_engine_is_asked_only_while_somebody_watches() -> None:
    world = make_world()
    one, other = Watching(world), Watching(world)
    await one.looks(1)
    await other.looks(1)
    assert world.service.watched == [1]
    await one.leave()
    assert world.service.watched == [1]
    await other.leave()
    assert world.service.watched == [1, 0]


async def test_a_server_that_shuts_down_is_not_held_up() -> None:
    world = make_world()
    watching = Watching(world)
    await watching.looks(1)
    world.service.state = "draining"
    await watching.task
    assert watching.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_there_is_a_limit_to_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_WATCHERS", 1)
    world = make_world()
    one = Watching(world)
    await one.looks(1)
    other = Watching(world)
    await other.task
    assert other.sent[0]["status"] == 503
    await one.leave()
