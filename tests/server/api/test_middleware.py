"""Around every route: an id on every answer, and a line in the log for every request."""

import logging

import pytest

from server.keys import Key
from tests.helpers.api_world import make_world
from tests.helpers.asgi import call


@pytest.mark.parametrize("theirs", ["abc-1.2_3", "x" * 64])
async def test_a_client_s_own_request_id_comes_back(theirs: str) -> None:
    answered = await call(make_world().app, "GET", "/v1/models", x_request_id=theirs)
    assert answered.headers["x-request-id"] == theirs


@pytest.mark.parametrize("theirs", ["", "a b", "x" * 65, "a\tb", "\u00e9", "a;b"])
async def test_an_odd_request_id_is_replaced_by_one_of_ours(theirs: str) -> None:
    answered = await call(make_world().app, "GET", "/v1/models", x_request_id=theirs)
    ours = answered.headers["x-request-id"]
    assert ours != theirs
    assert len(ours) == 24


@pytest.mark.parametrize("path", ["/nowhere", "/v1/completions", "/health"])
async def test_errors_have_an_id_too(path: str) -> None:
    assert "x-request-id" in (await call(make_world().app, "PUT", path)).headers


async def test_a_request_is_one_line_in_the_log_with_its_tokens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kvell.request")
    answered = await call(make_world().app, "POST", "/v1/completions", {"prompt": "hi"}, x_request_id="mine")
    (record,) = caplog.records
    assert record.getMessage().startswith("POST /v1/completions 200 in ")
    assert f"mine: {answered.json()['id']} 3+6 tokens, ok" in record.getMessage()


async def test_probes_and_scrapes_are_not_logged_unless_debugging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kvell.request")
    for path in ("/health", "/ready", "/metrics"):
        await call(make_world().app, "GET", path)
    assert not caplog.records


async def test_the_line_names_the_owner_and_never_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = make_world(keys=[Key("team-a", b"sesame")])
    await call(world.app, "GET", "/v1/models", x_api_key="sesame", x_request_id="mine")
    await call(world.app, "GET", "/v1/models", x_api_key="wrong-sesame")
    assert " team-a mine" in caplog.text
    assert "sesame" not in caplog.text
