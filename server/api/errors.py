"""Every failure as OpenAI's (or Anthropic's) clients expect it: one table from exception to status, type and code.

Knows HTTP and JSON; doesn't know which endpoint failed or why.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from server.api.unsupported import unsupported
from server.engine.errors import RequestError, ServiceError

ANTHROPIC_PATH = "/v1/messages"
ANTHROPIC_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}

logger = logging.getLogger("kvell.api")

Fields = dict[str, Any]


class NotJSON(RequestError):
    """The body is no JSON object that a request could be read from."""

    code = "invalid_json"


class WrongContentType(RequestError):
    """The body is declared as something other than JSON."""

    status = 415
    code = "unsupported_media_type"


class BodyTooSlow(RequestError):
    """The body did not come for so long that nobody waits for it any more."""

    status = 408
    code = "request_timeout"


class BodyTooLarge(RequestError):
    """The body is longer than the server reads."""

    status = 413
    code = "request_too_large"


class WrongKey(RequestError):
    """A key is set on the server and the request carries none, or another one."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


def error_body(message: str, *, type: str, code: str | None = None, param: str | None = None) -> Fields:
    """OpenAI's error object. A lone surrogate that a user sent comes back as its escape, as UTF-8 can't carry it."""
    said = {"message": message, "type": type, "param": param, "code": code}
    return {"error": {name: value and _writable(value) for name, value in said.items()}}


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class InternalError(ServiceError):
    """A fault in kvell itself: the log has the traceback, the client learns only that it was not their fault."""

    status = 500
    code = "internal_error"

    def __init__(self) -> None:
        super().__init__("The server had an error on this request")


def describe(error: RequestError | ServiceError) -> Fields:
    """The error object of a known failure, for an answer's body or for an event of a stream."""
    param = error.param if isinstance(error, RequestError) else None
    return error_body(error.message, type=error.type, code=error.code, param=param)


def json_response(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON, never kept by a cache."""
    kept = {"cache-control": "no-store"} | dict(headers or {})
    return Response(msgspec.json.encode(body), status, media_type="application/json", headers=kept)


def error_response(error: RequestError | ServiceError, path: str = "") -> Response:
    """A known failure as an HTTP answer, with the header that its status asks for, in the shape of the path's API."""
    headers = {}
    if isinstance(error, ServiceError) and error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    response = _answered(describe(error), status=error.status, headers=headers, path=path)
    if error.status == 408:
        response.headers["connection"] = "close"  # the rest of the body may still come, and is nobody's request
    if error.status == 401:
        # Basic, so that a browser asks for the key; a line each, as browsers don't read two challenges from one
        response.headers.append("www-authenticate", 'Basic realm="kvell"')
        response.headers.append("www-authenticate", "Bearer")
    return response


def _answered(body: Fields, *, status: int, path: str, headers: Mapping[str, str] | None = None) -> Response:
    """OpenAI's error object, or what Anthropic's clients expect on their paths."""
    if path.startswith(ANTHROPIC_PATH):
        body = anthropic_error(status, str(body["error"]["message"]))
    return json_response(body, status=status, headers=headers)


def anthropic_error(status: int, message: str) -> Fields:
    """Anthropic's error object. It has no place for code and param; the message names what is wrong."""
    kind = ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": _writable(message)}}


def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError | ServiceError), error
    return error_response(error, request.url.path)


def _http(request: Request, error: Exception) -> Response:
    """What the router says: no such path, or not with this method."""
    assert isinstance(error, HTTPException), error
    path = request.url.path
    if error.status_code == 404 and (known := unsupported(request.method, path)):
        return error_response(known, path)
    if error.status_code == 404:
        message, code = f"Unknown request URL: {request.method} {path}", "unknown_url"
    elif error.status_code == 405:
        message, code = f"Not allowed on {path}: {request.method}", "method_not_allowed"
    else:
        message, code = str(error.detail), "http_error"
    body = error_body(message, type="invalid_request_error", code=code)
    return _answered(body, status=error.status_code, headers=error.headers, path=path)


def _ours(request: Request, error: Exception) -> Response:
    return error_response(InternalError(), request.url.path)


def install_handlers(app: FastAPI) -> None:
    """Let every failure below `app` end in OpenAI's error shape."""
    for kind, handler in ((RequestError, _known), (ServiceError, _known), (HTTPException, _http), (Exception, _ours)):
        app.add_exception_handler(kind, handler)
