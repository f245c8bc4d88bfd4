"""Law 8: with a key set, every route needs it, unknown ones too, except liveness and readiness."""

import re
from typing import Any

import pytest

from server.api.guard import RequireKey
from server.api.routes import ROOMS
from server.api.unsupported import FAMILIES, STATELESS
from server.keys import Key, KeyLimits
from server.metrics import Metrics
from tests.helpers.api_world import key_ring, make_world
from tests.helpers.asgi import call

KEYS = ("sesame", "second-key")
CLOSED = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/v1/completions/render"),
    ("POST", "/v1/chat/completions/render"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/replay"),
    ("GET", "/v1/capabilities"),
    ("DELETE", "/v1/requests/abc"),
    *[("POST", f"/v1/{name}") for name in FAMILIES],
    *[("POST", f"/v1/{name}/abc") for name in (*FAMILIES, *STATELESS)],
    ("GET", "/metrics"),
    ("GET", "/"),
    ("GET", "/live"),
    ("GET", "/no/such/path"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("DELETE", "/v1/models"),
    ("OPTIONS", "/v1/completions"),
    ("GET", "/health/"),
    ("GET", "//health"),
    ("GET", "/ready/../v1/models"),
    ("GET", "/HEALTH"),
    ("GET", "/healthz"),
]
WRONG = [
    None,
    "",
    "sesame",
    "Bearer",
    "Bearer ",
    "Bearer wrong",
    "Bearer sesam",
    "Bearer sesame2",
    "Bearer sesame,second-key",
    "Basic sesame",
    "Bearer: sesame",
    "Bearer s\u00e9same",
    "Bearer SESAME",
]


def test_every_route_is_in_the_list_above() -> None:
    serving = make_world().serving
    paths = {getattr(route, "path", "?") for room in ROOMS for route in room.router(serving).routes}
    plain = {path.replace("{name:path}", "tiny").replace("{request_id}", "abc") for path in paths}
    closed = {re.sub(r"\{.*", "abc", path) for path in plain - {"/health", "/ready"}}
    assert len(closed) == 17
    assert closed <= {path for _, path in CLOSED}


@pytest.mark.parametrize(("method", "path"), CLOSED)
async def test_without_the_key_nothing_opens(method: str, path: str) -> None:
    world = make_world(keys=KEYS)
    answered = await call(world.app, method, path)
    assert answered.status == 401
    assert answered.every_header("www-authenticate") == ['Basic realm="kvell"', "Bearer"]
    if not path.startswith("/v1/messages"):  # which has a shape of its own
        assert (answered.error["type"], answered.error["code"]) == ("authentication_error", "invalid_api_key")
    assert "x-request-id" in answered.headers
    assert world.figure("kvell_rejections_total", reason="unauthorized") == 1


@pytest.mark.parametrize("header", WRONG)
async def test_a_wrong_key_in_any_form_does_not_open(header: str | None) -> None:
    named = {} if header is None else {"authorization": header}
    answered = await call(make_world(keys=KEYS).app, "GET", "/v1/models", None, **named)
    assert answered.status == 401
    assert "sesame" not in answered.body.decode().lower()


@pytest.mark.parametrize("header", ["Bearer sesame", "bearer sesame", "Bearer  sesame ", "Bearer second-key"])
async def test_each_of_the_keys_opens(header: str) -> None:
    answered = await call(make_world(keys=KEYS).app, "GET", "/v1/models", authorization=header)
    assert answered.status == 200


async def test_with_the_key_the_routes_answer_as_usual() -> None:
    world = make_world(keys=KEYS)
    answered = await call(world.app, "POST", "/v1/completions", {"prompt": "a"}, authorization="Bearer sesame")
    assert answered.status == 200
    assert (await call(world.app, "GET", "/nowhere", authorization="Bearer sesame")).status == 404


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_liveness_and_readiness_are_open(path: str) -> None:
    assert (await call(make_world(keys=KEYS).app, "GET", path)).status == 200


async def test_a_websocket_without_the_key_is_closed() -> None:
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("the door is shut")

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/v1/models", "headers": []}
    await RequireKey(app, key_ring(*KEYS), Metrics())(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_open_metrics_open_metrics_and_nothing_else() -> None:
    world = make_world(keys=KEYS, open_metrics=True)
    assert (await call(world.app, "GET", "/metrics")).status == 200
    for path in ("/v1/models", "/metrics/", "/"):
        assert (await call(world.app, "GET", path)).status == 401


async def test_a_preflight_of_an_allowed_origin_learns_nothing_and_opens_nothing() -> None:
    world = make_world(keys=KEYS, origins=("https://page.example",))
    asks = {"origin": "https://page.example", "access_control_request_method": "POST"}
    answered = await call(world.app, "OPTIONS", "/v1/completions", **asks)
    assert answered.headers["access-control-allow-origin"] == "https://page.example"
    assert (
        await call(world.app, "POST", "/v1/completions", {"prompt": "a"}, origin="https://page.example")
    ).status == 401
    answered = await call(world.app, "OPTIONS", "/v1/completions", **asks | {"origin": "https://other.example"})
    assert "access-control-allow-origin" not in answered.headers


async def test_without_the_setting_no_page_of_another_origin_may_ask() -> None:
    answered = await call(make_world().app, "GET", "/v1/models", origin="https://page.example")
    assert "access-control-allow-origin" not in answered.headers


async def test_prefixes_are_shared_within_an_owner_only() -> None:
    world = make_world(keys=KEYS)
    for key in KEYS:
        await call(world.app, "POST", "/v1/completions", {"prompt": "a", "cache_salt": "x"}, x_api_key=key)
    assert [(each.namespace, each.cache_salt) for each in world.service.submitted] == [(key, "x") for key in KEYS]
    world = make_world(keys=KEYS, share_prefixes=True)
    await call(world.app, "POST", "/v1/completions", {"prompt": "a"}, x_api_key=KEYS[0])
    assert [(each.namespace, each.cache_salt) for each in world.service.submitted] == [("", "")]


async def test_a_priority_reaches_the_line() -> None:
    world = make_world(keys=[Key("a", b"one", KeyLimits(weight=3))])
    for fields in ({}, {"priority": -7}):
        await call(world.app, "POST", "/v1/completions", {"prompt": "a", **fields}, x_api_key="one")
    assert [(each.owner, each.weight, each.priority) for each in world.service.submitted] == [("a", 3, 0), ("a", 3, -7)]
