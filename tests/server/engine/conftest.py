"""Engine processes for the tests of this room: the fake one, and services that start it."""

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from model.sampling_params import SamplingParams
from server.config import EngineConfig, ServerConfig
from server.engine.request import Request
from server.engine.service import EngineService
from server.metrics import Metrics

ROOT = Path(__file__).resolve().parents[3]

MakeService = Callable[..., EngineService]
MakeRequest = Callable[..., Request]
FakeCommand = Callable[[str], list[str]]


@pytest.fixture(autouse=True)
def _children_find_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def fake_command(tmp_path: Path) -> FakeCommand:
    """The command of a fake engine that plays a script, one word per start."""
    script_file = ROOT / "tests" / "helpers" / "fake_engine.py"

    def command(script: str) -> list[str]:
        return [sys.executable, str(script_file), "--script", script, "--starts", str(tmp_path / "starts")]

    return command


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="test")


@pytest.fixture
async def make_service(fake_command: FakeCommand, metrics: Metrics) -> AsyncIterator[MakeService]:
    """Services on fake engines, stopped at the end of the test."""
    services: list[EngineService] = []

    def make(
        script: str = "normal",
        *,
        engine_timeout_s: float = 60.0,
        max_num_seqs: int = 64,
        max_waiting_requests: int = 1024,
    ) -> EngineService:
        config = ServerConfig(
            model="fake",
            engine=EngineConfig(model_path="/models/fake", max_num_seqs=max_num_seqs),
            engine_timeout_s=engine_timeout_s,
            max_waiting_requests=max_waiting_requests,
        )
        service = EngineService(config, metrics=metrics, command=fake_command(script))
        services.append(service)
        return service

    yield make
    for service in services:
        await service.stop()


@pytest.fixture
def make_request() -> MakeRequest:
    numbers = iter(range(1_000_000))

    def make(behaviour: int, *, max_tokens: int = 3, rest: tuple[int, ...] = ()) -> Request:
        return Request(f"request-{next(numbers)}", (behaviour, *rest), max_tokens, SamplingParams())

    return make
