"""vLLM's names: what a router and a dashboard made for vLLM find here."""

import pytest

from server.engine.request import GroupStats
from server.metrics import Metrics
from tests.helpers.engine_reports import ready, step
from tests.helpers.scrapes import samples

# what the endpoint picker of the Gateway API inference extension reads of a vLLM server: metric, its labels
PICKER = {
    "vllm:num_requests_waiting": set(),
    "vllm:num_requests_running": set(),
    "vllm:kv_cache_usage_perc": set(),
    "vllm:cache_config_info": {"block_size", "num_gpu_blocks"},
}
# what the dashboard in vLLM's own repository reads, by model_name
DASHBOARD = {
    "vllm:e2e_request_latency_seconds_bucket",
    "vllm:e2e_request_latency_seconds_sum",
    "vllm:e2e_request_latency_seconds_count",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:time_per_output_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_bucket",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:gpu_cache_usage_perc",
    "vllm:request_prompt_tokens_bucket",
    "vllm:request_generation_tokens_bucket",
    "vllm:request_success_total",
    "vllm:request_queue_time_seconds_sum",
    "vllm:request_prefill_time_seconds_sum",
    "vllm:request_decode_time_seconds_sum",
}


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics()
    made.add_vllm_names("tiny", block_size=16)
    made.engine_ready(ready(cache_tokens=1610), restarted=False)
    return made


def shown(metrics: Metrics, name: str, **labels: str) -> float:
    found = samples(metrics.render()[0].decode())
    return found[name, tuple(sorted({"model_name": "tiny", "engine": "0", **labels}.items()))]


def test_without_being_asked_for_there_are_none() -> None:
    assert b"vllm:" not in Metrics().render()[0]


def test_a_router_finds_what_it_schedules_by(metrics: Metrics) -> None:
    found = samples(metrics.render()[0].decode())
    for name, labels in PICKER.items():
        (of_name,) = [dict(each) for metric, each in found if metric == name]
        assert labels <= set(of_name)
    assert shown(metrics, "vllm:cache_config_info", block_size="16", num_gpu_blocks="100") == 1


def test_a_dashboard_finds_its_series_of_the_model(metrics: Metrics) -> None:
    found = {name for name, labels in samples(metrics.render()[0].decode()) if ("model_name", "tiny") in labels}
    assert found >= DASHBOARD


def test_the_values_are_ours_at_the_same_moment(metrics: Metrics) -> None:
    metrics.step(
        step(seconds=0.1, decode_tokens=5, running=3, waiting=4, preemptions=2, groups=(GroupStats(1, 0, 3, 9),))
    )
    metrics.prompt_answered(prompt_tokens=20, cached_tokens=16)
    metrics.delivered(7)
    metrics.first_token(0.02)
    metrics.choice_finished("cancelled")
    metrics.choice_finished("stop")
    assert shown(metrics, "vllm:num_requests_running") == 3
    assert shown(metrics, "vllm:num_requests_waiting") == 4
    assert shown(metrics, "vllm:kv_cache_usage_perc") == shown(metrics, "vllm:gpu_cache_usage_perc") == 0.25
    assert shown(metrics, "vllm:num_preemptions_total") == 2
    assert (shown(metrics, "vllm:prompt_tokens_total"), shown(metrics, "vllm:prefix_cache_hits_total")) == (20, 16)
    assert shown(metrics, "vllm:generation_tokens_total") == 7
    assert shown(metrics, "vllm:time_to_first_token_seconds_bucket", le="0.02") == 1
    assert shown(metrics, "vllm:time_to_first_token_seconds_bucket", le="0.015") == 0
    assert shown(metrics, "vllm:iteration_tokens_total_sum") == 5
    reasons = {why: shown(metrics, "vllm:request_success_total", finished_reason=why) for why in ("stop", "abort")}
    assert reasons == {"stop": 1, "abort": 1}


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=1.0.0", "text/plain; version=1.0.0", ""])
def test_the_names_keep_their_colons_whatever_format_is_asked_for(metrics: Metrics, accept: str) -> None:
    body, kind = metrics.render(accept)
    assert kind.startswith("text/plain")
    assert b"\nvllm:prompt_tokens_total{" in body
    assert b"\nvllm_" not in body
