"""Traces: the span of a request, its place in the client's trace, and what it says and does not say."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from server.api.account import Generated
from server.keys import Key
from server.otel import Spans, phases
from tests.helpers.api_world import World, make_world, says
from tests.helpers.asgi import call

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PATH = "/v1/completions"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    made = InMemorySpanExporter()
    yield made
    made.shutdown()


def traced(exporter: InMemorySpanExporter, **given: Any) -> World:
    return make_world(trace=Spans(SimpleSpanProcessor(exporter)), **given)


def the_span(exporter: InMemorySpanExporter) -> tuple[ReadableSpan, Mapping[str, Any], list[ReadableSpan]]:
    """The one server span, its attributes, and those inside it."""
    spans = exporter.get_finished_spans()
    (server,) = [span for span in spans if span.kind == SpanKind.SERVER]
    assert server.context
    assert all(span.parent and span.parent.span_id == server.context.span_id for span in spans if span is not server)
    return server, dict(server.attributes or {}), [span for span in spans if span is not server]


async def test_a_request_is_a_server_span_with_the_attributes_of_generative_ai(exporter: InMemorySpanExporter) -> None:
    world = traced(exporter, play=says("Hello", cached=2), keys=[Key("team-a", b"sesame")])
    body = {"prompt": "hi", "max_tokens": 9, "temperature": 0.5, "seed": 7}
    answered = await call(world.app, "POST", PATH, body, x_api_key="sesame", x_request_id="mine")
    span, found, _ = the_span(exporter)
    assert span.name == "POST /v1/completions"
    assert span.status.status_code == StatusCode.UNSET
    assert found == {
        "http.request.method": "POST",
        "http.route": PATH,
        "url.path": PATH,
        "http.response.status_code": 200,
        "kvell.request_id": "mine",
        "kvell.outcome": "ok",
        "kvell.key": "team-a",
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "kvell",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.seed": 7,
        "gen_ai.request.choice.count": 1,
        "gen_ai.response.id": answered.json()["id"],
        "gen_ai.response.model": "tiny",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 6,
        "gen_ai.usage.cache_read.input_tokens": 2,
    }


async def test_the_names_are_those_of_the_conventions(exporter: InMemorySpanExporter) -> None:
    await call(traced(exporter).app, "POST", PATH, {"prompt": "hi"})
    _, found, _ = the_span(exporter)
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    assert {name for name in found if name.startswith("gen_ai.")} <= known


async def test_it_is_part_of_the_client_s_trace(exporter: InMemorySpanExporter) -> None:
    context = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=x"}
    await call(traced(exporter).app, "POST", PATH, {"prompt": "hi"}, **context)
    span, _, inner = the_span(exporter)
    assert span.context
    assert span.parent
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.context.trace_state.get("vendor") == "x"
    assert {each.context.trace_id for each in inner if each.context} == {span.context.trace_id}


async def test_a_client_that_does_not_want_it_sampled_is_heard(exporter: InMemorySpanExporter) -> None:
    await call(traced(exporter).app, "POST", PATH, {"prompt": "hi"}, traceparent=f"00-{TRACE}-{PARENT}-00")
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize("nonsense", ["", "00-xyz", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", "a\\nb"])
async def test_a_broken_context_begins_a_trace_of_its_own(exporter: InMemorySpanExporter, nonsense: str) -> None:
    answered = await call(traced(exporter).app, "POST", PATH, {"prompt": "hi"}, traceparent=nonsense)
    span, _, _ = the_span(exporter)
    assert answered.status == 200
    assert span.parent is None


async def test_queue_prompt_and_decode_follow_each_other_inside_it(exporter: InMemorySpanExporter) -> None:
    await call(traced(exporter).app, "POST", PATH, {"prompt": "hi"})
    span, _, inner = the_span(exporter)
    assert [each.name for each in inner] == ["queue", "prompt", "decode"]
    times = [time for each in inner for time in (each.start_time, each.end_time)]
    assert None not in times
    assert [span.start_time, *times, span.end_time] == sorted([span.start_time, *times, span.end_time])  # type: ignore[type-var]


def test_the_phases_are_where_the_first_token_says() -> None:
    generated = Generated(
        "id", "m", False, 1, 9, 1.0, 1.0, 0, queue_s=0.2, prompt_s=0.5, first_token_s=1.0, decode_s=2.0
    )
    assert list(phases(generated)) == [("queue", 0.3, 0.5), ("prompt", 0.5, 1.0), ("decode", 1.0, 3.0)]
    generated.first_token_s = None
    assert list(phases(generated)) == []


async def test_a_refusal_says_its_code_and_a_fault_is_an_error(exporter: InMemorySpanExporter) -> None:
    world = traced(exporter)
    await call(world.app, "POST", PATH, {"prompt": "hi", "model": "no"})
    span, found, inner = the_span(exporter)
    assert (found["http.response.status_code"], found["error.type"]) == (404, "model_not_found")
    assert (found["kvell.outcome"], span.status.status_code, inner) == ("refused", StatusCode.UNSET, [])
    exporter.clear()
    world.service.info = None
    await call(world.app, "POST", PATH, {"prompt": "hi"})
    span, found, _ = the_span(exporter)
    assert (found["http.response.status_code"], span.status.status_code) == (503, StatusCode.ERROR)


async def test_what_users_wrote_is_in_no_span(exporter: InMemorySpanExporter) -> None:
    world = traced(exporter, play=says("swordfish"), keys=["sesame"])
    await call(world.app, "POST", PATH, {"prompt": "swordfish", "user": "swordfish"}, x_api_key="sesame")
    spans = str([(span.name, dict(span.attributes or {}), span.events) for span in exporter.get_finished_spans()])
    assert "swordfish" not in spans


async def test_unknown_paths_make_no_names_and_probes_no_spans(exporter: InMemorySpanExporter) -> None:
    world = traced(exporter)
    for path in ("/health", "/ready", "/metrics"):
        await call(world.app, "GET", path)
    assert not exporter.get_finished_spans()
    await call(world.app, "GET", "/a/path/of/mine")
    span, found, _ = the_span(exporter)
    assert (span.name, found["url.path"]) == ("GET", "/*/*/*/*")  # made-up words are nobody's business
    assert "http.route" not in found


async def test_the_server_names_itself_and_the_operator_may_say_more(exporter: InMemorySpanExporter) -> None:
    await call(traced(exporter).app, "GET", "/v1/models")
    span, _, _ = the_span(exporter)
    assert span.resource.attributes["service.name"] == "kvell"
    assert span.resource.attributes["deployment.environment"] == "test"
