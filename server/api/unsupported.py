"""OpenAI's and Anthropic's paths that kvell does not serve, so that they don't look like mistyped ones.

Knows paths; a router has found by then that nothing of ours fits.
"""

import re

from server.engine.errors import UnsupportedEndpoint

# Families of paths below /v1: each name, and everything under it.
FAMILIES = (
    "assistants",
    "audio",
    "batches",
    "chatkit",
    "complete",
    "containers",
    "conversations",
    "edits",
    "embeddings",
    "engines",
    "evals",
    "files",
    "fine-tunes",
    "fine_tuning",
    "images",
    "moderations",
    "organization",
    "projects",
    "realtime",
    "rerank",
    "skills",
    "threads",
    "uploads",
    "vector_stores",
    "videos",
)
# Served themselves, but nothing is kept that could be found under them.
STATELESS = ("chat/completions", "messages", "responses")

_UNSERVED = re.compile(rf"/v1/(?:(?:{'|'.join(FAMILIES)})(?:/.*)?|(?:{'|'.join(STATELESS)})/.+)", re.DOTALL)


def unsupported(method: str, path: str) -> UnsupportedEndpoint | None:
    """What to answer on this path; None where no API has it."""
    if not _UNSERVED.fullmatch(path):
        return None
    return UnsupportedEndpoint(f"{method} {path[:200]} is not served by kvell; /v1/capabilities lists what is")
