"""Traces for OpenTelemetry: a server span per request, made when it has ended, with queue, prompt and decode inside.

Needs the otel extra; only `server.tracing` imports this. Attributes: the semantic conventions for HTTP servers and for
generative AI (gen_ai.*). W3C trace context is taken from the request; no prompt and no answer is part of a span.
"""

import threading
import time
from collections.abc import Iterator

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from server.api.account import Account, Generated
from server.api.middleware import QUIET_PATHS
from server.version import kvell_version

CLOSE_SECONDS = 3.0
NANO = 10**9
OPERATIONS = {"completions": "text_completion", "chat_completions": "chat", "responses": "chat", "messages": "chat"}

Attributes = dict[str, AttributeValue]


def connect(endpoint: str | None) -> "Spans":
    """Spans that go to the collector at `endpoint` (its base address; None: as OpenTelemetry's variables say)."""
    exporter = OTLPSpanExporter() if endpoint is None else OTLPSpanExporter(endpoint.rstrip("/") + "/v1/traces")
    return Spans(BatchSpanProcessor(exporter))


class Spans:
    """Makes spans of accounts and hands them to a processor, which must not block."""

    def __init__(self, processor: SpanProcessor) -> None:
        ours = Resource({"service.name": "kvell", "service.version": kvell_version()})
        self._provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("kvell")
        self._propagator = TraceContextTextMapPropagator()

    def __call__(self, account: Account) -> None:
        """A request has just ended. Its log line learns the trace's id."""
        if account.path in QUIET_PATHS:
            return
        ended = time.time_ns()
        began = ended - int(account.total_s * NANO)
        carrier = {"traceparent": account.traceparent, "tracestate": account.tracestate}
        span = self._tracer.start_span(
            # a path that is no endpoint may be anything; names should be few
            f"{account.method} {account.path}" if account.endpoint else account.method,
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes=_attributes(account),
            start_time=began,
        )
        if account.outcome == "error" or account.status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        if account.generated is not None:
            self._add_phases(span, account.generated, began, ended)
        span.end(ended)
        account.fields["trace_id"] = format_trace_id(span.get_span_context().trace_id)

    def _add_phases(self, parent: Span, generated: Generated, began: int, ended: int) -> None:
        for name, start, end in phases(generated):
            times = [min(began + int(at * NANO), ended) for at in (start, end)]
            self._tracer.start_span(name, context=set_span_in_context(parent), start_time=times[0]).end(times[1])

    def close(self) -> None:
        """Send what is left, for CLOSE_SECONDS at most: a collector that is away must not hold up the end."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def phases(generated: Generated) -> Iterator[tuple[str, float, float]]:
    """Name, start and end of what the engine did, in seconds from the arrival; before it, the body was read.

    The engine measures how long each took, the API when the first token came: it lies between prompt and decode.
    """
    first, queue, prompt = generated.first_token_s, generated.queue_s, generated.prompt_s
    if first is None or queue is None or prompt is None:
        return
    start = max(first - prompt, 0.0)
    yield "queue", max(start - queue, 0.0), start
    yield "prompt", start, first
    yield "decode", first, first + (generated.decode_s or 0.0)


def _attributes(account: Account) -> Attributes:
    found: Attributes = {
        "http.request.method": account.method,
        "url.path": account.path,
        "http.response.status_code": account.status,
        "kvell.request_id": account.request_id,
        "kvell.outcome": account.outcome,
    }
    if account.endpoint:
        found["http.route"] = account.path
    if account.key:
        found["kvell.key"] = account.key
    if account.error or account.status >= 500:
        found["error.type"] = account.error or str(account.status)
    if account.generated is not None:
        found |= _of_generation(account.generated, account.endpoint)
    return found


def _of_generation(generated: Generated, endpoint: str) -> Attributes:
    return {
        "gen_ai.operation.name": OPERATIONS.get(endpoint, "text_completion"),
        "gen_ai.provider.name": "kvell",
        "gen_ai.request.model": generated.model,
        "gen_ai.request.max_tokens": generated.max_tokens,
        "gen_ai.request.temperature": generated.temperature,
        "gen_ai.request.top_p": generated.top_p,
        "gen_ai.request.seed": generated.seed,
        "gen_ai.request.choice.count": generated.num_choices,
        "gen_ai.response.id": generated.answer_id,
        "gen_ai.response.model": generated.model,
        "gen_ai.response.finish_reasons": generated.finish_reasons,
        "gen_ai.usage.input_tokens": generated.prompt_tokens,
        "gen_ai.usage.output_tokens": generated.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": generated.cached_tokens,
    }
