"""Whether traces are made: what switches them on and off, and what is said when they can't be."""

import importlib
from typing import Any

import pytest

from server.config import build_config
from server.setting import ConfigError
from server.tracing import open_tracing

STANDARD = "OTEL_EXPORTER_OTLP_ENDPOINT"
ADDRESS = "http://127.0.0.1:1"


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The endpoints that were connected to."""
    asked: list[str | None] = []

    class Otel:
        def connect(self, endpoint: str | None) -> str:
            asked.append(endpoint)
            return "tracing"

    monkeypatch.setattr(importlib, "import_module", lambda name: Otel())
    return asked


def opened(env: dict[str, str], flag: str | None = None) -> Any:
    return open_tracing(build_config({"otlp-endpoint": flag}, {}), env)


def test_without_an_endpoint_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"imported {name}"))
    assert opened({}) is None
    assert opened({STANDARD: ""}) is None


@pytest.mark.parametrize("name", [STANDARD, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_the_standard_variables_switch_them_on(connected: list[str | None], name: str) -> None:
    assert opened({name: ADDRESS}) == "tracing"
    assert connected == [None]  # the exporter reads its variables by itself


def test_the_flag_goes_first(connected: list[str | None]) -> None:
    opened({STANDARD: "http://other"}, ADDRESS)
    assert connected == [ADDRESS]


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_the_standard_variables_switch_them_off(connected: list[str | None], off: dict[str, str]) -> None:
    assert opened({STANDARD: ADDRESS} | off) is None
    assert connected == []


def test_another_protocol_is_refused(connected: list[str | None]) -> None:
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_PROTOCOL is grpc; allowed: http/protobuf"):
        opened({STANDARD: ADDRESS, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


@pytest.mark.parametrize(
    ("env", "flag", "said"), [({STANDARD: ADDRESS}, None, STANDARD), ({}, ADDRESS, "--otlp-endpoint")]
)
def test_without_the_extra_there_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], flag: str | None, said: str
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'opentelemetry.sdk'", name="opentelemetry.sdk")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError) as caught:
        opened(env, flag)
    assert str(caught.value) == f"{said} is set, but traces need the otel extra (opentelemetry.sdk is missing): " + (
        "pip install 'kvell[otel]'"
    )


def test_a_module_of_ours_that_is_missing_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'server.otel'", name="server.otel")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError):
        opened({STANDARD: ADDRESS})
