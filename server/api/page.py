"""GET /: the page for people, a playground and the live view. One document: `server/web`, put together at start.

No build step, nothing from outside: the page's policy lets the browser load nothing but what is written in it.
"""

import base64
import hashlib
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from server.api.serving import Serving

SCRIPTS = ("common.js", "play.js", "live.js")


def assemble() -> tuple[str, str]:
    """The document, and the Content-Security-Policy that fits it."""
    web = files("server") / "web"
    style = (web / "style.css").read_text(encoding="utf-8")
    script = "\n".join((web / name).read_text(encoding="utf-8") for name in SCRIPTS)
    page = (web / "index.html").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    return page.replace("/*{style}*/", style).replace("/*{script}*/", script), policy


def _digest(inline: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


def router(serving: Serving) -> APIRouter:
    """The route. The page asks the API like any other client; nothing in it depends on what is served."""
    routes = APIRouter()
    page, policy = assemble()
    headers = {"content-security-policy": policy, "cache-control": "no-cache", "x-content-type-options": "nosniff"}

    @routes.get("/", response_model=None, include_in_schema=False)
    async def index() -> Response:
        """The page."""
        return HTMLResponse(page, headers=headers)

    return routes
