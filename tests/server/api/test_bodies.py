"""So many bytes of bodies at once; the rest is refused before it is read."""

import asyncio

import pytest
from starlette.datastructures import Headers

from server.api.bodies import PREPARED_PER_SECOND, SMALL_BYTES, UNKNOWN_BYTES, Bodies
from server.api.body import MAX_BODY_BYTES
from server.engine.errors import TooBusy
from tests.helpers.api_world import make_world
from tests.helpers.asgi import Call, call

LIMIT = 2**22
LARGE = {"content-length": str(MAX_BODY_BYTES)}


def of(num_bytes: int | None) -> Headers:
    return Headers({} if num_bytes is None else {"content-length": str(num_bytes)})


def test_bodies_are_held_up_to_the_limit_and_no_further() -> None:
    bodies = Bodies(LIMIT)
    with bodies.hold(of(LIMIT - 20_000)):
        with bodies.hold(of(20_000)), pytest.raises(TooBusy, match="20000 more would pass the limit of 4194304"):
            bodies.hold(of(20_000)).__enter__()
        with bodies.hold(of(20_000)):
            pass


def test_one_may_always_be_read_and_leaves_nothing_behind() -> None:
    bodies = Bodies(LIMIT)
    for _ in range(2):
        with bodies.hold(of(2 * LIMIT)), pytest.raises(TooBusy):
            bodies.hold(of(20_000)).__enter__()


def test_one_that_fails_is_not_held_any_more() -> None:
    bodies = Bodies(LIMIT)
    with pytest.raises(KeyError), bodies.hold(of(LIMIT)):
        raise KeyError
    with bodies.hold(of(LIMIT)):
        pass


def test_a_body_of_unknown_length_counts_as_something() -> None:
    bodies = Bodies(LIMIT)
    with bodies.hold(of(LIMIT - UNKNOWN_BYTES)), bodies.hold(of(None)), pytest.raises(TooBusy):
        bodies.hold(of(20_000)).__enter__()


def test_the_time_to_come_back_is_what_the_tokeniser_needs() -> None:
    bodies = Bodies(10 * PREPARED_PER_SECOND)
    with bodies.hold(of(9 * PREPARED_PER_SECOND)), pytest.raises(TooBusy) as error:
        bodies.hold(of(2 * PREPARED_PER_SECOND)).__enter__()
    assert error.value.retry_after == 9


def test_small_bodies_always_pass() -> None:
    bodies = Bodies(LIMIT)
    with bodies.hold(of(LIMIT)):
        for _ in range(1000):
            bodies.hold(of(SMALL_BYTES)).__enter__()
        with pytest.raises(TooBusy):
            bodies.hold(of(SMALL_BYTES + 1)).__enter__()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_large_body_beside_too_many_is_refused_by_its_head(path: str) -> None:
    """The first body never comes to its end; once its client has left, there is room again."""
    world = make_world()
    first = Call(world.app, "POST", path, [b"{"], LARGE, endless=True)
    await asyncio.sleep(0)
    refused = await Call(world.app, "POST", path, [b"{"], {"content-length": "20000"}, endless=True).done()
    assert (refused.status, refused.error["code"]) == (503, "overloaded")
    assert int(refused.headers["retry-after"]) >= 1
    small = {"prompt": "a"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "a"}]}
    assert (await call(world.app, "POST", path, small, content_length="60")).status == 200
    first.leave()
    assert (await first.done()).status == 499
    again = {**small, "user": "x" * 20_000}
    assert (await call(world.app, "POST", path, again, content_length=str(20_100))).status == 200
