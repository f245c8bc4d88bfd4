"""One server with the default model for all tests that need real words. Skipped where the model can't be had."""

from collections.abc import Iterator

import pytest

from tests.helpers.live_server import LiveServer
from tests.helpers.real_models import real_model


@pytest.fixture(scope="session")
def smollm() -> Iterator[LiveServer]:
    real_model("smollm2-135m-instruct")
    with LiveServer("smollm2-135m-instruct", "--kv-cache-memory", "512MiB") as live:
        yield live.wait_ready()
