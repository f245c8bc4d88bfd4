"""Every failure as OpenAI's clients expect it: one table from exception to status, type and code.

Knows HTTP and JSON; doesn't know which endpoint failed or why.
"""

import logging
from collections.abc import Mapping

import msgspec
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from server.engine.errors import RequestError, ServiceError

logger = logging.getLogger("kvell.api")


class NotJSON(RequestError):
    """The body is no JSON object that a request could be read from."""

    code = "invalid_json"


class WrongContentType(RequestError):
    """The body is declared as something other than JSON."""

    status = 415
    code = "unsupported_media_type"


class BodyTooLarge(RequestError):
    """The body is longer than the server reads."""

    status = 413
    code = "request_too_large"


class WrongKey(RequestError):
    """A key is set on the server and the request carries none, or another one."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


def error_body(message: str, *, type: str, code: str | None = None, param: str | None = None) -> dict[str, object]:
    """OpenAI's error object. A lone surrogate that a user sent comes back as its escape, as UTF-8 can't carry it."""
    writable = {"message": message, "type": type, "param": param, "code": code}
    return {"error": {k: v and v.encode("utf-8", "backslashreplace").decode() for k, v in writable.items()}}


INTERNAL_ERROR = error_body("The server had an error on this request", type="server_error", code="internal_error")


def describe(error: RequestError | ServiceError) -> dict[str, object]:
    """The error object of a known failure, for an answer's body or for an event of a stream."""
    param = error.param if isinstance(error, RequestError) else None
    return error_body(error.message, type=error.type, code=error.code, param=param)


def json_response(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON, never kept by a cache."""
    kept = {"cache-control": "no-store"} | dict(headers or {})
    return Response(msgspec.json.encode(body), status, media_type="application/json", headers=kept)


def error_response(error: RequestError | ServiceError) -> Response:
    """A known failure as an HTTP answer, with the header that its status asks for."""
    headers = {}
    if isinstance(error, ServiceError) and error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    response = json_response(describe(error), status=error.status, headers=headers)
    if error.status == 401:
        # Basic, so that a browser asks for the key; a line each, as browsers don't read two challenges from one
        response.headers.append("www-authenticate", 'Basic realm="kvell"')
        response.headers.append("www-authenticate", "Bearer")
    return response


def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError | ServiceError), error
    return error_response(error)


def _http(request: Request, error: Exception) -> Response:
    """What the router says: no such path, or not with this method."""
    assert isinstance(error, HTTPException), error
    if error.status_code == 404:
        message, code = f"Unknown request URL: {request.method} {request.url.path}", "unknown_url"
    elif error.status_code == 405:
        message, code = f"Not allowed on {request.url.path}: {request.method}", "method_not_allowed"
    else:
        message, code = str(error.detail), "http_error"
    body = error_body(message, type="invalid_request_error", code=code)
    return json_response(body, status=error.status_code, headers=error.headers)


def _ours(request: Request, error: Exception) -> Response:
    """A fault in kvell itself: the log has the traceback, the client learns only that it was not their fault."""
    return json_response(INTERNAL_ERROR, status=500)


def install_handlers(app: FastAPI) -> None:
    """Let every failure below `app` end in OpenAI's error shape."""
    for kind, handler in ((RequestError, _known), (ServiceError, _known), (HTTPException, _http), (Exception, _ours)):
        app.add_exception_handler(kind, handler)
