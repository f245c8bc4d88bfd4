"""What arrives as JSON is taken as it is written or refused; nothing is guessed, and nothing gets a 500."""

import json

import pytest

from server.api.body import MAX_BODY_BYTES, parse_object
from server.api.errors import NotJSON
from server.engine.errors import TooBusy
from tests.helpers.api_world import make_world
from tests.helpers.asgi import Call, call

BAD = {
    "empty": (b"", "empty"),
    "blank": (b" \n ", "empty"),
    "not json": (b"hello", "not JSON"),
    "cut short": (b'{"a": 1', "not JSON"),
    "something after": (b'{"a": 1} x', "not JSON"),
    "array": (b"[]", "an array"),
    "string": (b'"a"', "a string"),
    "number": (b"5", "a number"),
    "null": (b"null", "null"),
    "true": (b"true", "a boolean"),
    "nan": (b'{"a": NaN}', "NaN"),
    "infinity": (b'{"a": Infinity}', "Infinity"),
    "minus infinity": (b'{"a": -Infinity}', "-Infinity"),
    "overflow": (b'{"a": 1e999}', "1e999"),
    "negative overflow": (b'{"a": [-1e999]}', "-1e999"),
    "repeated key": (b'{"a": 1, "b": 2, "a": 1}', "'a' is given twice"),
    "repeated key inside": (b'{"a": [{"x": 1, "x": 2}]}', "'x' is given twice"),
    "latin-1": (b'{"a": "\xe9"}', "not UTF-8: byte 7"),
    "utf-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "byte order mark": (b'\xef\xbb\xbf{"a": 1}', "not JSON"),
    "control character": (b'{"a": "\x01"}', "not JSON"),
    "single quotes": (b"{'a': 1}", "not JSON"),
    "depth": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too deeply"),
    "depth of objects": (b'{"a": ' * 50_000 + b"1" + b"}" * 50_000, "too deeply"),
    "digits": (b'{"a": ' + b"9" * 10_000 + b"}", "digits"),
    "half a pair": (b'{"a": "\\ud800"}', "surrogate"),
    "other half": (b'{"a": ["x\\uDC00y"]}', "surrogate"),
    "half a pair as key": (b'{"\\ud83d": 1}', "surrogate"),
}


@pytest.mark.parametrize(("raw", "said"), BAD.values(), ids=BAD)
def test_what_is_no_proper_json_object_is_refused_with_a_reason(raw: bytes, said: str) -> None:
    with pytest.raises(NotJSON, match=said.replace("(", r"\(")):
        parse_object(raw)


@pytest.mark.parametrize(("raw", "said"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
async def test_it_is_a_400_on_every_route(raw: bytes, said: str, path: str) -> None:
    answered = await call(make_world().app, "POST", path, raw=raw)
    assert answered.status == 400
    assert answered.error["type"] == "invalid_request_error"
    assert answered.error["code"] == "invalid_json"


@pytest.mark.parametrize(
    "value",
    [
        {"a": "😀 \ud83d\ude00"},
        {"a": "\\ud800 spelled out"},
        {"a": -0.0, "b": 1e-300, "c": 2**70},
        {"": {"": []}},
        {"a": "\u2028\u0000\u007f"},
    ],
)
def test_proper_json_comes_through_as_it_is(value: dict[str, object]) -> None:
    raw = json.dumps(value).encode("utf-8")
    assert parse_object(raw) == json.loads(raw)


def test_finding_a_repeated_key_takes_one_pass() -> None:
    # counting every key for every key would take minutes here
    keys = ", ".join(f'"{i}": 0' for i in range(300_000))
    with pytest.raises(NotJSON, match="'299999' is given twice"):
        parse_object(f'{{{keys}, "299999": 1}}'.encode())


async def test_a_body_over_the_limit_is_refused_by_its_declared_length_before_it_is_read() -> None:
    sent = Call(make_world().app, "POST", "/v1/completions", [b"x"] * 3, {"content-length": str(MAX_BODY_BYTES + 1)})
    answered = await sent.done()
    assert answered.status == 413
    assert answered.error["code"] == "request_too_large"
    assert str(MAX_BODY_BYTES) in answered.error["message"]


async def test_a_body_over_the_limit_without_a_length_is_refused_while_it_is_read() -> None:
    part = b" " * 2**20
    answered = await Call(make_world().app, "POST", "/v1/completions", [part] * 12, {}).done()
    assert answered.status == 413


async def test_a_body_in_many_parts_is_one_body() -> None:
    world = make_world()
    parts = [bytes([byte]) for byte in json.dumps({"prompt": "hi", "max_tokens": 2}).encode()]
    answered = await Call(world.app, "POST", "/v1/completions", parts, {}).done()
    assert answered.status == 200
    assert world.service.submitted[0].prompt == (256, *b"hi")


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/vnd.api+json", 200),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ],
)
async def test_only_json_may_be_declared(content_type: str, status: int) -> None:
    # a page of another site can post text/plain or a form to this server without asking the browser's leave
    answered = await call(make_world().app, "POST", "/v1/completions", {"prompt": "a"}, content_type=content_type)
    assert answered.status == status
    if status == 415:
        assert "application/json" in answered.error["message"]


async def test_without_a_declared_type_the_body_is_taken_as_json() -> None:
    answered = await Call(make_world().app, "POST", "/v1/completions", [b'{"prompt": "a"}'], {}).done()
    assert answered.status == 200


async def test_a_body_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.api.body.BODY_SECONDS", 0.01)
    answered = await Call(make_world().app, "POST", "/v1/completions", [b"{"], endless=True).done()
    assert answered.status == 408
    assert answered.error["code"] == "request_timeout"
    assert answered.headers["connection"] == "close"


async def test_who_is_refused_anyway_is_not_read() -> None:
    world = make_world()
    world.service.refuse = TooBusy("full", retry_after=3)
    answered = await Call(world.app, "POST", "/v1/completions", [b"{"], endless=True).done()
    assert (answered.status, answered.headers["retry-after"]) == (503, "3")
