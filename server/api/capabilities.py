"""GET /v1/capabilities: every field of every endpoint with its type, range and default; whether bit exactness holds.

Read off the API's own description (`server.api.schema`), which is made of the wire types; nothing is listed by hand.
"""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.body import MAX_BODY_BYTES
from server.api.defaults import default_of
from server.api.described import Capabilities
from server.api.errors import json_response
from server.api.schema import COMPONENTS, describe
from server.api.serving import SamplingDefaults, Serving
from server.api.types import UNSERVED
from server.api.unsupported import FAMILIES
from server.api.wording import Fields

Schema = dict[str, Any]

PUT_APART = ("title", "default", "discriminator", "anyOf", "oneOf", "items")
HARMLESS = {wire.__name__: values for wire, values in UNSERVED.items()}


def endpoints(described: Schema, model: SamplingDefaults) -> list[Fields]:
    """One entry per method and path of an OpenAPI description."""
    schemas = described["components"]["schemas"]
    found: list[Fields] = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            entry: Fields = {"method": method.upper(), "path": path, "summary": operation.get("description", "")}
            body = operation.get("requestBody")
            if body is not None:
                wire = body["content"]["application/json"]["schema"]["$ref"].removeprefix(COMPONENTS)
                entry["fields"] = fields_of(wire, schemas, model)
                entry["accepted_when_they_ask_for_nothing"] = HARMLESS.get(wire, {})
            found.append(entry)
    return found


def fields_of(wire: str, schemas: Schema, model: SamplingDefaults) -> dict[str, Schema]:
    """The fields of a wire type: JSON Schema, with `required` or `default`; null is like leaving a field out."""
    schema = schemas[wire]
    fields = {}
    for name, described in schema["properties"].items():
        said = _plain(described, schemas, model)
        if name in schema.get("required", ()):
            fields[name] = said | {"required": True}
        else:
            fields[name] = said | {"default": default_of(wire, name, model)}
    return fields


def _plain(described: Schema, schemas: Schema, model: SamplingDefaults) -> Schema:
    """A field's schema without null, titles and references."""
    if "$ref" in described:
        wire = described["$ref"].removeprefix(COMPONENTS)
        if "properties" in schemas[wire]:
            return {"type": "object", "fields": fields_of(wire, schemas, model)}
        return _plain(schemas[wire], schemas, model)
    kept = {key: value for key, value in described.items() if key not in PUT_APART}
    if "items" in described:
        kept["items"] = _plain(described["items"], schemas, model)
    either = [*described.get("anyOf", ()), *described.get("oneOf", ())]
    forms = [_plain(form, schemas, model) for form in either if form != {"type": "null"}]
    return kept | (forms[0] if len(forms) == 1 else {"anyOf": forms} if forms else {})


def router(serving: Serving) -> APIRouter:
    """The route."""
    routes = APIRouter()

    @routes.get("/v1/capabilities", response_model=None, openapi_extra=describe(Capabilities))
    async def capabilities(request: Request) -> Response:
        """What this server takes, and what it promises."""
        limits, info = serving.limits(), serving.service.info
        assert info is not None  # else there are no limits
        return json_response(
            {
                "object": "capabilities",
                "model": serving.model.id,
                "bit_exact": info.bit_exact,
                "limits": {
                    "max_model_len": limits.tokens,
                    "max_sequences": limits.max_sequences,
                    "max_body_bytes": MAX_BODY_BYTES,
                },
                "endpoints": endpoints(request.app.openapi(), serving.model.defaults),
                "unsupported_endpoints": [f"/v1/{family}" for family in FAMILIES],
            }
        )

    return routes
