"""Everything Prometheus can read; the only room that knows Prometheus. docs/metrics.md describes each name."""

from server.metrics.figures import Metrics
from server.metrics.names import SECONDS, Endpoint, Outcome, Rejection

__all__ = ["SECONDS", "Endpoint", "Metrics", "Outcome", "Rejection"]
