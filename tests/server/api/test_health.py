"""/health is about this process, /ready about the engine; /metrics answers whatever happens to either."""

import pytest

from tests.helpers.api_world import make_world
from tests.helpers.asgi import call


@pytest.mark.parametrize("state", ["starting", "ready", "hung", "restarting", "draining", "failed"])
async def test_health_is_200_whatever_the_engine_does(state: str) -> None:
    world = make_world()
    world.service.state = state
    assert (await call(world.app, "GET", "/health")).json() == {"status": "ok"}


@pytest.mark.parametrize("state", ["starting", "hung", "restarting", "draining", "failed"])
async def test_ready_is_503_with_state_and_reason_unless_the_engine_is_ready(state: str) -> None:
    world = make_world()
    world.service.state, world.service.reason = state, "why not"
    answered = await call(world.app, "GET", "/ready")
    assert answered.status == 503
    assert answered.json() == {"status": "not ready", "state": state, "reason": "why not"}
    assert answered.headers["cache-control"] == "no-store"


async def test_ready_is_200_when_it_is() -> None:
    assert (await call(make_world().app, "GET", "/ready")).status == 200


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_load_balancers_may_ask_with_head(path: str) -> None:
    assert (await call(make_world().app, "HEAD", path)).status == 200


@pytest.mark.parametrize("state", ["ready", "restarting"])
async def test_metrics_answer_with_or_without_an_engine(state: str) -> None:
    world = make_world()
    world.service.state = state
    answered = await call(world.app, "GET", "/metrics")
    assert answered.status == 200
    assert answered.headers["content-type"].startswith("text/plain")
    assert b"kvell_requests_running" in answered.body


async def test_metrics_come_in_the_format_that_the_scraper_accepts() -> None:
    answered = await call(make_world().app, "GET", "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert answered.headers["content-type"].startswith("application/openmetrics-text")
    assert answered.body.endswith(b"# EOF\n")
