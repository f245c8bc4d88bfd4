"""Around every route: an id on every answer, and a line in the log for every request."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from server.engine.errors import EngineUnavailable
from server.engine.request import Request
from server.keys import Key
from server.logs import OneLine, fields_of
from tests.helpers.api_world import Step, make_world, says
from tests.helpers.asgi import Call, call


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


def line_of(caplog: pytest.LogCaptureFixture) -> tuple[str, dict[str, Any]]:
    """The one line that was written: its message and its fields."""
    (record,) = [record for record in caplog.records if record.name == "kvell.request"]
    return record.getMessage(), fields_of(record)


TIMES = {"queue_s", "first_token_s", "total_s"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_one_line_with_tokens_times_and_outcome(
    caplog: pytest.LogCaptureFixture, *, stream: bool
) -> None:
    caplog.set_level(logging.INFO, "kvell.request")
    world = make_world(says("Hello", cached=2), keys=[Key("team-a", b"sesame")])
    body = {"prompt": "hi", "stream": stream}
    await call(world.app, "POST", "/v1/completions", body, x_request_id="mine", x_api_key="sesame")
    message, fields = line_of(caplog)
    assert message == "POST /v1/completions"
    assert all(fields.pop(name) >= 0 for name in TIMES)
    assert fields.pop("answer").startswith("cmpl-")
    tokens = {"prompt_tokens": 3, "cached_tokens": 2, "output_tokens": 6}
    said = {"status": 200, "outcome": "ok", "id": "mine", "key": "team-a", "endpoint": "completions"}
    assert fields == said | tokens


@pytest.mark.parametrize(
    ("body", "status", "outcome", "error"),
    [
        ({"prompt": "hi", "max_tokens": -1}, 400, "refused", "integer_below_min_value"),
        ({"prompt": "hi", "model": "no"}, 404, "refused", "model_not_found"),
    ],
)
async def test_a_refused_request_s_line_says_why(
    caplog: pytest.LogCaptureFixture, body: dict[str, Any], status: int, outcome: str, error: str
) -> None:
    caplog.set_level(logging.INFO, "kvell.request")
    answered = await call(make_world().app, "POST", "/v1/completions", body)
    _, fields = line_of(caplog)
    assert answered.status == fields["status"] == status
    assert fields["outcome"] == outcome
    assert fields["error"] == answered.error["code"]


async def test_a_dead_engine_s_line_is_an_error_or_nobody_s_fault(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kvell.request")

    def dies(requests: Sequence[Request]) -> Iterable[Step]:
        yield EngineUnavailable("the engine died")

    await call(make_world(dies).app, "POST", "/v1/completions", {"prompt": "hi"})
    _, fields = line_of(caplog)
    assert (fields["status"], fields["outcome"]) == (503, "error")
    caplog.clear()
    world = make_world()
    world.service.refuse = EngineUnavailable("no engine", retry_after=1)
    await call(world.app, "POST", "/v1/completions", {"prompt": "hi"})
    _, fields = line_of(caplog)
    assert (fields["status"], fields["outcome"], fields["error"]) == (503, "unavailable", "engine_unavailable")


async def test_a_client_that_leaves_is_cancelled_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kvell.request")
    gate = asyncio.Event()
    under_way = Call(make_world(lambda requests: [gate]).app, "POST", "/v1/completions", [b'{"prompt": "a"}'])
    under_way.leave()
    await under_way.task
    _, fields = line_of(caplog)
    assert (fields["status"], fields["outcome"]) == (499, "cancelled")


@pytest.mark.parametrize(
    ("path", "status", "outcome"),
    [("/v1/models", 200, "ok"), ("/nowhere", 404, "refused"), ("/v1/completions", 405, "refused")],
)
async def test_other_requests_are_judged_by_their_status(
    caplog: pytest.LogCaptureFixture, path: str, status: int, outcome: str
) -> None:
    caplog.set_level(logging.INFO, "kvell.request")
    await call(make_world().app, "GET", path)
    _, fields = line_of(caplog)
    assert (fields["status"], fields["outcome"]) == (status, outcome)


SECRET = "the codeword is swordfish"


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
async def test_what_a_user_wrote_is_in_no_line(caplog: pytest.LogCaptureFixture, path: str) -> None:
    caplog.set_level(logging.DEBUG)
    world = make_world(says("swordfish"))
    for body in ({"prompt": SECRET}, {"prompt": SECRET, "swordfish": "swordfish"}, {"prompt": SECRET, "user": SECRET}):
        await call(world.app, "POST", path, body)
    assert caplog.records
    assert all("swordfish" not in record.getMessage() + str(fields_of(record)) for record in caplog.records)


@pytest.mark.parametrize("stream", [False, True])
async def test_prompts_and_answers_are_there_where_the_operator_wants_them(
    caplog: pytest.LogCaptureFixture, *, stream: bool
) -> None:
    caplog.set_level(logging.INFO, "kvell.request")
    world = make_world(says("fish", " and chips"), log_prompts=True)
    await call(world.app, "POST", "/v1/completions", {"prompt": SECRET, "n": 2, "max_tokens": 6, "stream": stream})
    _, fields = line_of(caplog)
    assert fields["prompts"] == ("<bos>" + SECRET,)
    assert fields["answers"] == ("fish a", "fish a")


@pytest.mark.parametrize(
    "path",
    ["/a 200 ok key=admin", "/a\n12:00:00 INFO    kvell.request: GET /v1/models", '/a" b', "/\u2028x", "/" + "é" * 500],
)
async def test_a_path_is_one_word_in_the_line(caplog: pytest.LogCaptureFixture, path: str) -> None:
    caplog.set_level(logging.INFO, "kvell.request")
    await call(make_world().app, "GET", path)
    (record,) = caplog.records
    method, _, shown = OneLine("%(message)s").formatMessage(record).partition(" ")
    word, _, rest = shown.partition(" ")
    assert method == "GET"
    assert word == record.getMessage().split(" ", 1)[1]
    assert len(word) <= 200
    assert rest.startswith("status=404 outcome=refused id=")


@pytest.mark.parametrize(
    ("method", "path", "shown"),
    [
        ("GET", "/v1/models/sk-swordfish", "GET /v1/models/*"),
        ("POST", "/swordfish/v1/completions", "POST /*/v1/completions"),
        ("DELETE", "/v1/requests/swordfish", "DELETE /v1/requests/*"),
        ("POST", "/v1/embeddings/swordfish", "POST /v1/embeddings/*"),
        ("SWORDFISH", "/v2/completions", "* /*/completions"),
        ("GET", "//swordfish//", "GET //*//"),
    ],
)
async def test_of_a_path_only_words_that_routes_have_are_shown(
    caplog: pytest.LogCaptureFixture, method: str, path: str, shown: str
) -> None:
    caplog.set_level(logging.DEBUG)
    for keys in ([], [Key("a", b"key")]):
        caplog.clear()
        await call(make_world(keys=keys).app, method, path)
        assert [record.getMessage() for record in caplog.records] == [shown]


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
    assert [fields_of(record).get("key") for record in caplog.records] == ["team-a", None]
    assert all("sesame" not in record.getMessage() + str(fields_of(record)) for record in caplog.records)
