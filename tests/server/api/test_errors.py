"""Whatever goes wrong ends in OpenAI's error shape, with a status that says whose fault it was."""

import json
import logging

import pytest

from server.api.errors import describe, error_body, error_response
from server.engine.errors import InvalidValue, TooBusy
from server.logs import fields_of
from tests.helpers.api_world import make_world
from tests.helpers.asgi import Call, call


@pytest.mark.parametrize("path", ["/v1/", "/v1/completions/", "/v1/embedding", "/health/", "/%2e%2e", "/é"])
async def test_an_unknown_path_is_a_404_in_the_same_shape(path: str) -> None:
    answered = await call(make_world().app, "GET", path)
    assert answered.status == 404
    assert answered.error["code"] == "unknown_url"
    assert "GET" in answered.error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/completions", "POST"),
        ("DELETE", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("POST", "/metrics", "GET"),
    ],
)
async def test_a_wrong_method_is_a_405_that_says_which_is_right(method: str, path: str, allowed: str) -> None:
    answered = await call(make_world().app, method, path)
    assert answered.status == 405
    assert answered.headers["allow"] == allowed
    assert answered.error["code"] == "method_not_allowed"


async def test_a_bug_is_a_500_without_its_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    caplog.set_level(logging.INFO)

    def broken(requests: object, visitor: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(world.service, "submit", broken)
    under_way = Call(world.app, "POST", "/v1/completions", [b'{"prompt": "a"}'])
    with pytest.raises(ZeroDivisionError):  # starlette raises it again, and uvicorn writes the traceback to the log
        await under_way.task
    answered = under_way.answered
    assert answered.status == 500
    assert answered.error["type"] == "server_error"
    assert "secret" not in answered.body.decode()
    assert "x-request-id" in answered.headers
    assert [fields_of(record)["status"] for record in caplog.records if record.name == "kvell.request"] == [500]


def test_half_a_surrogate_pair_in_a_message_can_still_be_sent() -> None:
    body = error_body("bad: \ud800", type="invalid_request_error", param="\udfff")
    text = json.dumps(body, ensure_ascii=False).encode("utf-8").decode()
    assert json.loads(text)["error"]["message"] == "bad: \\ud800"


def test_a_known_failure_keeps_all_that_it_says() -> None:
    assert describe(InvalidValue("no", param="n")) == {
        "error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": "invalid_value"}
    }


@pytest.mark.parametrize(("retry_after", "header"), [(None, None), (1, "1"), (600, "600")])
def test_how_long_to_wait_is_a_header(retry_after: int | None, header: str | None) -> None:
    response = error_response(TooBusy("later", retry_after=retry_after))
    assert response.status_code == TooBusy.status
    assert response.headers.get("retry-after") == header
