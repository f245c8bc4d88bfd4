"""The API described for machines: OpenAPI, from the wire types themselves. Served at /openapi.json, shown at /docs.

Bodies are read by `server.api.body` and `server.api.fields`, not by FastAPI, so it has to be told about them here.
"""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from server.api.types import Wire

COMPONENTS = "#/components/schemas/"


def takes(wire: type[Wire]) -> dict[str, Any]:
    """For a route's `openapi_extra`: its body is this type."""
    schema = {"$ref": COMPONENTS + wire.__name__}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe_bodies(app: FastAPI, wires: Sequence[type[Wire]]) -> None:
    """Let the app's description include these types."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = get_openapi(title=app.title, version=app.version, routes=app.routes)
            modes = [(wire, "validation") for wire in wires]
            _, schema = models_json_schema(modes, ref_template=COMPONENTS + "{model}")  # type: ignore[arg-type]
            described.setdefault("components", {}).setdefault("schemas", {}).update(schema["$defs"])
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
