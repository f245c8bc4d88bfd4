"""Whether traces are wanted, and who gets them; `server.otel` makes them, and is imported only then.

OpenTelemetry's own variables count; where an endpoint comes from --otlp-endpoint, it goes first.
"""

import importlib
from collections.abc import Mapping
from typing import Protocol

from server.api.account import Account
from server.config import ServerConfig
from server.setting import ConfigError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
SPOKEN = "http/protobuf"


class Tracing(Protocol):
    """Makes a span of every account that is closed."""

    def __call__(self, account: Account) -> None: ...

    def close(self) -> None:
        """Send what is left; returns after some seconds even if nobody takes it."""
        ...


def open_tracing(config: ServerConfig, env: Mapping[str, str]) -> Tracing | None:
    """None where no endpoint is set, or OpenTelemetry is switched off. Raises ConfigError."""
    source = "--otlp-endpoint" if config.otlp_endpoint else next((name for name in ENDPOINTS if env.get(name)), None)
    off = env.get("OTEL_SDK_DISABLED", "").lower() == "true" or env.get("OTEL_TRACES_EXPORTER") == "none"
    if source is None or off:
        return None
    for name in PROTOCOLS:
        if env.get(name, SPOKEN) != SPOKEN:
            raise ConfigError(f"{name} is {env[name]}; allowed: {SPOKEN}")
    try:
        tracing: Tracing = importlib.import_module("server.otel").connect(config.otlp_endpoint)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            f"{source} is set, but traces need the otel extra ({error.name} is missing): pip install 'kvell[otel]'"
        ) from None
    return tracing
