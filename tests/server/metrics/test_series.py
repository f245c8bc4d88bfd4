"""Nobody can make the server keep more series: not with paths, models, keys, ids, users or errors of their own."""

import logging
import os

import pytest

from tests.helpers.api_world import make_world
from tests.helpers.asgi import call
from tests.helpers.scrapes import samples

INPUTS = int(os.environ.get("KVELL_TEST_INPUTS", "1000"))  # `make test-prometheus` sends 10,000


async def test_however_many_distinct_inputs_add_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("kvell.request"), "disabled", True)  # it isn't what is tested, and takes time
    world = make_world(keys=["sesame"], open_metrics=True)
    world.service.metrics.add_vllm_names("tiny", block_size=16)
    before = set(samples((await call(world.app, "GET", "/metrics")).body.decode()))
    for number in range(INPUTS // 5):
        mark = f"x{number}"
        headers = {"x_api_key": "sesame", "x_request_id": mark}
        await call(world.app, "GET", f"/{mark}", **headers)
        await call(world.app, mark.upper(), "/v1/models", x_api_key=mark)
        await call(world.app, "POST", "/tokenize", {"prompt": mark, "user": mark, "model": mark}, **headers)
        await call(world.app, "POST", "/v1/completions", {"prompt": mark, mark: 1}, **headers)
        await call(world.app, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 1, "user": mark}, **headers)
    after = set(samples((await call(world.app, "GET", "/metrics")).body.decode()))
    assert after == before
    assert len(after) < 1000
    assert world.figure("kvell_requests_total", endpoint="completions", outcome="ok") == INPUTS // 5
