"""OpenAI's other paths say that they are not served; unknown ones stay unknown."""

import pytest

from tests.helpers.api_world import make_world
from tests.helpers.asgi import call

UNSERVED = [
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/moderations"),
    ("POST", "/v1/images/generations"),
    ("POST", "/v1/audio/transcriptions"),
    ("GET", "/v1/files"),
    ("DELETE", "/v1/files/file-1"),
    ("GET", "/v1/fine_tuning/jobs/ft-1/events"),
    ("POST", "/v1/batches"),
    ("POST", "/v1/threads/t/runs"),
    ("GET", "/v1/vector_stores/x"),
    ("GET", "/v1/responses/resp_1"),
    ("POST", "/v1/responses/resp_1/cancel"),
    ("GET", "/v1/chat/completions/chatcmpl-1"),
    ("POST", "/v1/messages/batches"),
]


@pytest.mark.parametrize(("method", "path"), UNSERVED)
async def test_a_path_that_is_not_served_says_so(method: str, path: str) -> None:
    answered = await call(make_world().app, method, path, {"input": "x"})
    assert answered.status == 400
    if not path.startswith("/v1/messages"):
        assert (answered.error["code"], answered.error["type"]) == ("unsupported_endpoint", "invalid_request_error")
        assert f"{method} {path}" in answered.error["message"]


@pytest.mark.parametrize("path", ["/v1/embedding", "/v1/embeddings2", "/v2/embeddings", "/embeddings", "/v1/files_"])
async def test_a_path_that_nobody_has_is_a_404(path: str) -> None:
    answered = await call(make_world().app, "POST", path, {})
    assert (answered.status, answered.error["code"]) == (404, "unknown_url")
