"""DELETE /v1/requests/{id}: whoever has the id can end a request, and its client gets a proper end."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from server.api.running import Running
from server.engine.errors import RequestCancelled
from server.engine.request import Request
from tests.helpers.api_world import Step, World, events_of, make_world
from tests.helpers.asgi import Answered, Call, call
from tests.helpers.tiny_text import ids_of

PATH = "/v1/completions"


class Paused:
    """A play that brings "ab", then waits for the test, then goes on."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def __call__(self, requests: Sequence[Request]) -> Iterable[Step]:
        lines = [events_of(request, ids_of("abcd")) for request in requests]
        for number in range(4):
            if number == 2:
                yield self.gate
            yield [event for line in lines for event in line[number]]


def begin(world: World, request_id: str = "mine", *, stream: bool, n: int = 1) -> Call:
    body = b'{"prompt": "hi", "n": %d, "stream": %s}' % (n, b"true" if stream else b"false")
    return Call(world.app, "POST", PATH, [body], {"x-request-id": request_id})


async def until_running(world: World, count: int = 1) -> None:
    while len(world.service.submitted) < count:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)


async def cancel(world: World, request_id: str = "mine") -> Answered:
    return await call(world.app, "DELETE", f"/v1/requests/{request_id}")


@pytest.mark.parametrize("n", [1, 3])
async def test_a_cancelled_request_ends_with_an_error_and_leaves_the_engine(n: int) -> None:
    world = make_world(Paused())
    under_way = begin(world, stream=False, n=n)
    await until_running(world)
    answered = await cancel(world)
    assert (answered.status, answered.json()) == (200, {"id": "mine", "object": "request", "cancelled": True})
    ended = await under_way.done()
    assert (ended.status, ended.error["code"], ended.error["type"]) == (499, "request_cancelled", "cancelled")
    assert ended.headers["x-request-id"] == "mine"
    assert world.service.cancelled == [request.id for request in world.service.submitted]
    assert len(world.service.in_flight) == len(world.serving.running) == 0
    assert world.figure("kvell_requests_total", endpoint="completions", outcome="cancelled") == 1
    assert world.figure("kvell_discarded_tokens_total") == 2 * n


async def test_a_cancelled_stream_ends_with_an_error_event_after_what_it_had() -> None:
    world = make_world(Paused())
    under_way = begin(world, stream=True)
    await until_running(world)
    assert (await cancel(world)).status == 200
    ended = await under_way.done()
    *pieces, last = ended.chunks()
    assert "".join(chunk["choices"][0]["text"] for chunk in pieces) == "ab"
    assert last["error"]["code"] == "request_cancelled"
    assert ended.complete
    assert len(world.serving.running) == 0


async def test_every_answer_carries_the_id_that_cancels_it() -> None:
    world = make_world(Paused())
    under_way = begin(world, "not a sane id", stream=True)
    await until_running(world)
    given = under_way.answered.headers["x-request-id"]
    assert (await cancel(world, given)).status == 200
    await under_way.done()


async def test_with_keys_nobody_cancels_what_another_owner_runs() -> None:
    play = Paused()
    world = make_world(play, keys=("ann", "bob"))
    headers = {"x-request-id": "mine", "authorization": "Bearer ann"}
    under_way = Call(world.app, "POST", PATH, [b'{"prompt": "hi"}'], headers)
    await until_running(world)
    path = "/v1/requests/mine"
    assert (await call(world.app, "DELETE", path, authorization="Bearer bob")).status == 404
    assert (await call(world.app, "DELETE", path, authorization="Bearer ann")).status == 200
    assert (await under_way.done()).status == 499


async def test_an_id_that_nothing_has_is_a_404() -> None:
    world = make_world()
    await call(world.app, "POST", PATH, {"prompt": "hi"}, x_request_id="mine")
    for request_id in ("mine", "other", "x" * 300):
        answered = await cancel(world, request_id)
        assert (answered.status, answered.error["code"]) == (404, "request_not_found")


async def test_all_requests_of_one_id_end_and_others_go_on() -> None:
    play = Paused()
    world = make_world(play)
    same = [begin(world, stream=stream) for stream in (True, False)]
    other = begin(world, "other", stream=False)
    await until_running(world, 3)
    assert (await cancel(world)).status == 200
    play.gate.set()
    assert [(await each.done()).status for each in same] == [200, 499]
    assert (await other.done()).json()["choices"][0]["text"] == "abcd"


async def test_a_request_that_was_refused_or_has_ended_is_forgotten() -> None:
    world = make_world()
    for body in ({"prompt": "hi"}, {"prompt": "hi", "stream": True}, {"prompt": "hi", "temperature": 9}):
        await call(world.app, "POST", PATH, body)
    assert len(world.serving.running) == 0


async def test_a_client_that_leaves_while_its_body_is_read_is_forgotten() -> None:
    world = make_world()
    under_way = Call(world.app, "POST", PATH, [b"{", b"}"])
    under_way._body = []  # nothing comes any more
    under_way.answered.status = 1
    under_way.leave()
    await under_way.done()
    assert len(world.serving.running) == 0


def test_a_cancel_that_comes_before_the_engine_has_the_request_counts() -> None:
    class Held:
        cancelled = 0

        def cancel(self, request_id: str | None = None) -> None:
            self.cancelled += 1

    running, held = Running(), Held()
    ticket = running.enter("ann", "early")
    ticket.check()
    assert running.cancel("bob", "early") == 0
    assert running.cancel("ann", "early") == 1
    ticket.hold(held)  # type: ignore[arg-type]
    assert held.cancelled == 1
    with pytest.raises(RequestCancelled, match="early"):
        ticket.check()
    running.leave(ticket)
    assert running.cancel("ann", "early") == 0
