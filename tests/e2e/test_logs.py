"""What a real server says: in JSON each line of its log is an object, whoever wrote it, and a collector gets a span of
each request; no key and no prompt in any of them."""

import contextlib
import io
import json
import signal
import socket
from dataclasses import dataclass
from typing import Any

import pytest

from server.top import run as watch
from tests.helpers.collector import running_collector
from tests.helpers.live_server import LiveServer, open_pidfd
from tests.helpers.scrapes import assert_same, promised, samples, scraped
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = pytest.mark.e2e

SMALL = ("--threads", "1", "--kv-cache-memory", "64MiB", "--log-format", "json", "--log-level", "debug")
VLLM = ("--metrics-compat", "vllm", "--block-size", "32")
KEY, SECRET = "sk-swordfish", "marlin is the codeword"
EVIL = "/x%0A%7B%22level%22:%22info%22%7D%0D%0Ay%20outcome=ok"


@dataclass(frozen=True)
class Said:
    """Standard output and error, the latter as records, and the spans that a collector got."""

    output: list[str]
    errors: list[str]
    records: list[dict[str, Any]]
    spans: list[Any]
    top: str  # what `kvell top` printed
    metrics: str


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """By a server that was asked, lost its engine and ended."""
    model = make_model_dir(tmp_path_factory.mktemp("models") / "tiny")
    with (
        running_collector() as collector,
        LiveServer(str(model), *SMALL, *VLLM, "--otlp-endpoint", collector.url, env={"KVELL_API_KEY": KEY}) as server,
    ):
        server.wait_ready()
        server.headers = {"Authorization": f"Bearer {KEY}"}
        ask = {"prompt": SECRET, "max_tokens": 4, "ignore_eos": True, "user": SECRET}
        for headers in (server.headers, {"x_api_key": KEY}, {"x_api_key": "wrong-" + KEY}):
            server.request("POST", "/v1/completions", ask, x_request_id="mine", **headers)
        server.request("POST", "/v1/completions", ask | {SECRET: SECRET}, **server.headers)
        server.request("GET", EVIL, **server.headers)
        metrics = server.request("GET", "/metrics", **server.headers).body.decode()
        with contextlib.redirect_stdout(io.StringIO()) as top:
            watch(server.url, api_key=KEY)
        with socket.create_connection(("127.0.0.1", server.port)) as odd:
            odd.sendall(b"this is no HTTP\r\n\r\n")
            odd.recv(1000)
        signal.pidfd_send_signal(open_pidfd(server.engine_pid), signal.SIGKILL)
        server.until(lambda: any("SIGKILL" in line for line in server.errors), "nobody minds")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    return Said(
        server.output,
        server.errors,
        [json.loads(line) for line in server.errors],
        collector.spans(),
        top.getvalue(),
        metrics,
    )


@pytest.fixture
def records(said: Said) -> list[dict[str, Any]]:
    return said.records


def test_every_line_is_an_object_with_time_level_logger_and_message(said: Said) -> None:
    assert said.output == []
    for record in said.records:
        assert {"time", "level", "logger", "message"} <= set(record)


def test_the_start_is_a_record(records: list[dict[str, Any]]) -> None:
    (ready,) = [record for record in records if record["message"] == "kvell is ready"]
    assert ready["address"].startswith("http://127.0.0.1:")
    assert ready["cache_tokens"] > 0


def test_each_request_is_a_record(records: list[dict[str, Any]]) -> None:
    asked = [record for record in records if record["message"] == "POST /v1/completions"]
    assert [record["outcome"] for record in asked] == ["ok", "ok", "refused", "refused"]
    assert [record.get("key") for record in asked] == ["default", "default", None, "default"]
    first = asked[0]
    assert (first["id"], first["output_tokens"], first["status"]) == ("mine", 4, 200)
    assert 0 <= first["queue_s"] <= first["first_token_s"] <= first["total_s"]


def test_nobody_forged_a_line(records: list[dict[str, Any]]) -> None:
    (evil,) = [record for record in records if record.get("status") == 404]
    assert evil["message"] == "GET /*"


def test_uvicorn_s_lines_are_records_too(records: list[dict[str, Any]]) -> None:
    (odd,) = [record for record in records if record["logger"].startswith("uvicorn")]
    assert odd["message"] == "Invalid HTTP request received."


def test_the_engine_s_death_is_a_record(records: list[dict[str, Any]]) -> None:
    (death,) = [record for record in records if "SIGKILL" in record["message"]]
    assert (death["level"], death["logger"]) == ("error", "server.engine.service")


def test_no_key_and_no_prompt_is_anywhere(said: Said) -> None:
    written = "\n".join(said.errors) + str(said.spans)
    assert "swordfish" not in written
    assert "marlin" not in written


def test_its_figures_are_the_ones_on_the_page(said: Said) -> None:
    assert_same(scraped(said.metrics), promised())
    assert 'vllm:generation_tokens_total{engine="0",model_name="tiny"} 8.0' in said.metrics
    shape = {name: dict(labels) for (name, labels), value in samples(said.metrics).items() if value == 1}
    assert shape["vllm:cache_config_info"]["block_size"] == "32"


def test_kvell_top_shows_the_server_with_its_key(said: Said) -> None:
    first, figures, *_ = said.top.splitlines()
    assert first.split() == ["kvell", "ready", "tiny"]
    assert figures.startswith("decode ")
    assert "used 0 (0.0 MiB)" in said.top


def test_the_collector_got_a_span_of_each_request_with_its_phases(said: Said) -> None:
    asked = [record for record in said.records if record["logger"] == "kvell.request" and "trace_id" in record]
    servers = {span.trace_id.hex(): span for span in said.spans if span.kind == span.SPAN_KIND_SERVER}
    assert {record["trace_id"] for record in asked} == set(servers)
    first = servers[asked[0]["trace_id"]]
    inner = [span.name for span in said.spans if span.parent_span_id == first.span_id]
    assert sorted(inner) == ["decode", "prompt", "queue"]
    tokens = {each.key: each.value.int_value for each in first.attributes}
    assert tokens["gen_ai.usage.output_tokens"] == 4
