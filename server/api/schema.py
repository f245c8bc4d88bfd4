"""The API described for machines: OpenAPI, from the wire types themselves. Served at /openapi.json, shown at /docs.

Bodies are read by `server.api.body` and `server.api.fields`, and answers are made without FastAPI's models, so it has
to be told about both here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from server.api.types import Wire

COMPONENTS = "#/components/schemas/"
FAULTS = {
    400: "The body: the message says which field, which value, and what is allowed.",
    401: "A key is set on the server, and none or another one came.",
    404: "Another model than the one served, or nothing of this name.",
    413: "The body is over 8 MiB.",
    415: "The body is declared as something other than JSON.",
    499: "Someone cancelled this request by its id.",
    500: "This request alone failed.",
    503: "The engine is loading, busy, restarting or shutting down; Retry-After says for how long, if that is known.",
}
READING = (401, 500, 503)
ASKING = (400, 401, 404, 413, 415, 500, 503)
GENERATING = (*ASKING, 499)
REQUEST_ID = {
    "x-request-id": {
        "description": "The request's own id, if it was up to 64 of letters, digits, `.`, `_` and `-`, else a new one.",
        "schema": {"type": "string"},
    }
}

Described = dict[str, Any]


def describe(
    answer: type[Wire],
    *,
    body: type[Wire] | None = None,
    chunk: type[Wire] | None = None,
    faults: Sequence[int] = READING,
    error: str = "OpenAIError",
    examples: Mapping[str, Any] | None = None,
) -> Described:
    """For a route's `openapi_extra`. chunk: what the data of a stream's events is, where the answer can be streamed.

    faults: the statuses that it may have beside 200, all with a body of the type `error`. examples: bodies by what
    they show.
    """
    content: Described = {"application/json": {"schema": _ref(answer.__name__)}}
    if chunk is not None:
        content["text/event-stream"] = {"schema": _event(chunk.__name__)}
    described: Described = {
        "responses": {"200": {"description": "The answer.", "content": content, "headers": REQUEST_ID}}
    }
    for status in sorted(faults):
        fault = {"application/json": {"schema": _ref(error)}}
        described["responses"][str(status)] = {"description": FAULTS[status], "content": fault, "headers": REQUEST_ID}
    if body is not None:
        shown = {name: {"summary": name, "value": value} for name, value in (examples or {}).items()}
        media = {"schema": _ref(body.__name__), "examples": shown}
        described["requestBody"] = {"required": True, "content": {"application/json": media}}
    return described


def _event(chunk: str) -> Described:
    """Before OpenAPI 3.2, the schema of a stream is that of each of its events."""
    chunks = {"type": "string", "contentMediaType": "application/json", "contentSchema": _ref(chunk)}
    data = {"anyOf": [{"const": "[DONE]"}, chunks]}
    return {
        "type": "object",
        "description": f"Server-sent events, where `stream` is true; the data of each is a {chunk}, or an error.",
        "properties": {"event": {"type": "string"}, "data": data},
        "required": ["data"],
    }


def _ref(name: str) -> Described:
    return {"$ref": COMPONENTS + name}


def describe_types(app: FastAPI, wires: Sequence[type[Wire]], about: str) -> None:
    """Let the app's description include these types. about: what it says of the API as a whole."""

    def openapi() -> Described:
        if app.openapi_schema is None:
            described = get_openapi(title=app.title, version=app.version, routes=app.routes, description=about)
            modes = [(wire, "validation") for wire in wires]
            _, schema = models_json_schema(modes, ref_template=COMPONENTS + "{model}")  # type: ignore[arg-type]
            components = described.setdefault("components", {})
            components["schemas"] = schema["$defs"]  # FastAPI's own are of a validation that isn't used
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for operation in (each for methods in described["paths"].values() for each in methods.values()):
                operation["responses"].pop("422", None)
                operation["security"] = [{"key": []}, {}]
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
