"""Servers that several files share: one with a tiny exact model, and one with the default model for real words.

The second is skipped where the model can't be had.
"""

from collections.abc import Iterator

import pytest

from tests.helpers.live_server import LiveServer
from tests.helpers.real_models import real_model
from tests.helpers.tiny_model_dir import make_model_dir

EXACT = ("--dtype", "float64", "--kv-cache-dtype", "float64", "--threads", "1", "--kv-cache-memory", "64MiB")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    model = make_model_dir(tmp_path_factory.mktemp("models") / "tiny")
    with LiveServer(str(model), *EXACT) as live:
        yield live.wait_ready()


@pytest.fixture(scope="session")
def smollm() -> Iterator[LiveServer]:
    real_model("smollm2-135m-instruct")
    with LiveServer("smollm2-135m-instruct", "--kv-cache-memory", "512MiB", "--max-queue-seconds", "off") as live:
        yield live.wait_ready()
