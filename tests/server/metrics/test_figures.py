"""The figures: their names, what each counts, and that no user can add one."""

from typing import Any, get_args

import pytest

from server.engine.observer import Observer
from server.engine.request import DiskStats, GroupStats
from server.metrics import SECONDS, Endpoint, Metrics, Outcome, Rejection
from server.metrics.names import DiskAction
from tests.helpers.engine_reports import ready, step

FROZEN = {
    "kvell_request_generation_tokens": "histogram",
    "kvell_request_prompt_tokens": "histogram",
    "kvell_prompt_seconds": "histogram",
    "kvell_decode_seconds": "histogram",
    "kvell_backend_info": "gauge",
    "kvell_build_info": "gauge",
    "kvell_cached_prompt_tokens": "counter",
    "kvell_choices": "counter",
    "kvell_computed_tokens": "counter",
    "kvell_discarded_tokens": "counter",
    "kvell_engine_load_seconds": "gauge",
    "kvell_engine_restarts": "counter",
    "kvell_engine_up": "gauge",
    "kvell_generation_tokens": "counter",
    "kvell_inter_token_seconds": "histogram",
    "kvell_kv_cache_blocks": "gauge",
    "kvell_kv_cache_bytes": "gauge",
    "kvell_kv_cache_usage_ratio": "gauge",
    "kvell_preemptions": "counter",
    "kvell_prefix_cache_disk_blocks": "counter",
    "kvell_prefix_cache_disk_bytes": "gauge",
    "kvell_prompt_tokens": "counter",
    "kvell_queue_seconds": "histogram",
    "kvell_recomputed_tokens": "counter",
    "kvell_rejections": "counter",
    "kvell_request_seconds": "histogram",
    "kvell_requests": "counter",
    "kvell_requests_running": "gauge",
    "kvell_requests_waiting": "gauge",
    "kvell_tokens_waiting": "gauge",
    "kvell_step_seconds": "histogram",
    "kvell_step_tokens": "histogram",
    "kvell_time_to_first_token_seconds": "histogram",
    "kvell_tokens_per_second": "gauge",
}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics(version="1.2", clock=clock)


def figure(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"kvell_{name}", labels)


# names and form


def test_names_and_kinds_are_frozen(metrics: Metrics) -> None:
    found = {family.name: family.type for family in metrics.registry.collect() if family.name.startswith("kvell_")}
    assert found == FROZEN


def test_everything_else_is_about_the_process(metrics: Metrics) -> None:
    others = {family.name for family in metrics.registry.collect()} - set(FROZEN)
    assert all(name.startswith("process_") for name in others)


def test_nothing_is_said_about_when_a_figure_was_made(metrics: Metrics) -> None:
    metrics.request_finished("completions", "ok", seconds=1.0)
    assert b"_created" not in metrics.render()[0]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/html", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain; version=1.", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=abc", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ],
)
def test_a_scrape_gets_the_format_it_asks_for(metrics: Metrics, accept: str, content_type: str) -> None:
    body, kind = metrics.render(accept)
    assert kind.startswith(content_type)
    assert b"\nkvell_requests_running 0.0\n" in body
    assert body.endswith(b"# EOF\n") == ("openmetrics" in content_type)


def test_two_servers_in_one_process_do_not_share_figures(clock: Clock) -> None:
    one, other = Metrics(), Metrics()
    one.delivered(3)
    assert (figure(one, "generation_tokens_total"), figure(other, "generation_tokens_total")) == (3, 0)


def test_histograms_resolve_a_millisecond() -> None:
    assert SECONDS[:5] == (0.001, 0.002, 0.003, 0.004, 0.005)
    assert list(SECONDS) == sorted(set(SECONDS))


def test_the_service_can_report_here(metrics: Metrics) -> None:
    observer: Observer = metrics
    assert observer is metrics


# what the engine says


def test_a_step_sets_the_gauges_and_adds_to_the_counters(metrics: Metrics) -> None:
    metrics.step(step(seconds=0.02, prompt_tokens=12, recomputed_tokens=5, decode_tokens=3, preemptions=2, running=4))
    metrics.step(step(seconds=0.01, decode_tokens=4, running=3, waiting=6, preemptions=1))
    assert (figure(metrics, "requests_running"), figure(metrics, "requests_waiting")) == (3, 6)
    assert (figure(metrics, "preemptions_total"), figure(metrics, "recomputed_tokens_total")) == (3, 5)
    assert (figure(metrics, "step_tokens_sum"), figure(metrics, "step_tokens_count")) == (19, 2)
    assert [figure(metrics, "computed_tokens_total", phase=phase) for phase in ("prompt", "decode")] == [12, 7]
    assert figure(metrics, "step_seconds_sum") == pytest.approx(0.03)
    assert figure(metrics, "step_seconds_bucket", le="0.01") == 1


def test_blocks_on_disk_are_counted_beyond_the_loss_of_an_engine(metrics: Metrics) -> None:
    metrics.step(step(disk=DiskStats(8192, blocks_read=3, blocks_written=2)))
    metrics.engine_lost()
    metrics.step(step(disk=DiskStats(4096, blocks_read=1, blocks_refused=5, warning="full")))
    metrics.step(step())
    counts = [figure(metrics, "prefix_cache_disk_blocks_total", action=each) for each in get_args(DiskAction)]
    assert counts == [4, 2, 5]
    assert figure(metrics, "prefix_cache_disk_bytes") == 4096


def test_a_report_without_a_step_is_no_step(metrics: Metrics) -> None:
    metrics.step(step(running=1))
    assert (figure(metrics, "step_seconds_count"), figure(metrics, "requests_running")) == (0, 1)


def test_the_cache_is_counted_over_all_groups(metrics: Metrics) -> None:
    metrics.step(step(groups=(GroupStats(1, 2, 5, 1000), GroupStats(used=3, cached=0, free=1, block_bytes=10))))
    blocks = [figure(metrics, "kv_cache_blocks", state=state) for state in ("used", "cached", "free")]
    sizes = [figure(metrics, "kv_cache_bytes", state=state) for state in ("used", "cached", "free")]
    assert (blocks, sizes) == ([4, 2, 6], [1030, 2000, 5010])
    assert figure(metrics, "kv_cache_usage_ratio") == pytest.approx(1030 / 8040)


def test_the_gauges_fall_with_the_engine_and_the_counters_do_not(metrics: Metrics) -> None:
    metrics.engine_ready(ready(), restarted=False)
    metrics.step(
        step(seconds=0.1, decode_tokens=5, running=2, waiting=3, preemptions=1, groups=(GroupStats(1, 2, 3, 10),))
    )
    metrics.engine_lost()
    for name in ("requests_running", "requests_waiting", "kv_cache_usage_ratio", "engine_up"):
        assert figure(metrics, name) == 0, name
    for state in ("used", "cached", "free"):
        assert figure(metrics, "kv_cache_blocks", state=state) == 0
        assert figure(metrics, "kv_cache_bytes", state=state) == 0
    assert (figure(metrics, "preemptions_total"), figure(metrics, "step_tokens_sum")) == (1, 5)
    metrics.engine_ready(ready(), restarted=True)
    metrics.step(step(seconds=0.1, decode_tokens=2, preemptions=1))
    assert (figure(metrics, "preemptions_total"), figure(metrics, "step_tokens_sum")) == (2, 7)


def test_restarts_are_counted_and_the_latest_backend_is_the_one_shown(metrics: Metrics) -> None:
    metrics.engine_ready(ready(dtype="bfloat16"), restarted=False)
    assert figure(metrics, "engine_restarts_total") == 0
    metrics.engine_ready(ready(load_seconds=2.5), restarted=True)
    assert (figure(metrics, "engine_restarts_total"), figure(metrics, "engine_load_seconds")) == (1, 2.5)
    shown = [line for line in metrics.render()[0].decode().splitlines() if line.startswith("kvell_backend_info")]
    labels = 'backend="torch",device="cpu",dtype="float32",kernels="torch",kv_cache_dtype="float32",note="no compiler"'
    labels += ',quantization="int4"'
    assert shown == [f"kvell_backend_info{{{labels}}} 1.0"]


def test_a_silent_engine_is_not_up(metrics: Metrics) -> None:
    metrics.engine_ready(ready(), restarted=False)
    metrics.engine_responsive(False)
    assert figure(metrics, "engine_up") == 0
    metrics.engine_responsive(True)
    assert figure(metrics, "engine_up") == 1


def test_the_rate_is_over_the_last_ten_seconds_and_decays_to_nothing(metrics: Metrics, clock: Clock) -> None:
    metrics.step(step(seconds=0.5, prompt_tokens=100, decode_tokens=20))
    clock.now += 4.0
    metrics.step(step(seconds=0.5, decode_tokens=30))

    def rates() -> tuple[float | None, float | None]:
        return figure(metrics, "tokens_per_second", phase="prompt"), figure(
            metrics, "tokens_per_second", phase="decode"
        )

    assert rates() == (10.0, 5.0)
    clock.now += 6.0
    assert rates() == (0.0, 3.0)
    clock.now += 4.0
    assert rates() == (0.0, 0.0)


def test_the_rates_window_does_not_grow_without_scrapes(metrics: Metrics, clock: Clock) -> None:
    for _ in range(5000):
        clock.now += 0.01
        metrics.step(step(seconds=0.01, decode_tokens=1))
    assert len(metrics._rates.window) <= 1001
    assert figure(metrics, "tokens_per_second", phase="decode") == pytest.approx(100.0, rel=0.01)


# what users got


def test_tokens_are_counted_as_usage_counts_them(metrics: Metrics) -> None:
    metrics.prompt_answered(prompt_tokens=20, cached_tokens=16)
    metrics.delivered(3)
    metrics.delivered(2)
    metrics.discarded(4)
    assert figure(metrics, "prompt_tokens_total") == 20
    assert figure(metrics, "cached_prompt_tokens_total") == 16
    assert figure(metrics, "generation_tokens_total") == 5
    assert figure(metrics, "discarded_tokens_total") == 4


def test_times_of_a_request(metrics: Metrics) -> None:
    metrics.admitted(0.0005)
    metrics.first_token(0.0025)
    metrics.next_tokens(4, 0.004)
    metrics.request_finished("completions", "ok", seconds=0.75)
    assert figure(metrics, "queue_seconds_bucket", le="0.001") == 1
    assert figure(metrics, "time_to_first_token_seconds_bucket", le="0.002") == 0
    assert figure(metrics, "time_to_first_token_seconds_bucket", le="0.003") == 1
    assert figure(metrics, "inter_token_seconds_count") == 4
    assert figure(metrics, "inter_token_seconds_sum") == pytest.approx(0.004)
    assert figure(metrics, "request_seconds_sum") == 0.75


@pytest.mark.parametrize("outcome", get_args(Outcome))
@pytest.mark.parametrize("endpoint", get_args(Endpoint))
def test_each_outcome_of_each_endpoint_has_its_counter(metrics: Metrics, endpoint: Endpoint, outcome: Outcome) -> None:
    metrics.request_finished(endpoint, outcome)
    assert figure(metrics, "requests_total", endpoint=endpoint, outcome=outcome) == 1
    assert figure(metrics, "request_seconds_count") == 0


@pytest.mark.parametrize("reason", ["stop", "length", "cancelled", "error"])
def test_choices_are_counted_by_reason(metrics: Metrics, reason: Any) -> None:
    assert figure(metrics, "choices_total", finish_reason=reason) == 0
    metrics.choice_finished(reason)
    assert figure(metrics, "choices_total", finish_reason=reason) == 1


@pytest.mark.parametrize("code", get_args(Rejection))
def test_rejections_are_counted_by_code(metrics: Metrics, code: str) -> None:
    assert figure(metrics, "rejections_total", reason=code) == 0
    metrics.rejected(code)
    assert figure(metrics, "rejections_total", reason=code) == 1


def test_an_answered_request_is_measured_in_tokens_and_time(metrics: Metrics) -> None:
    metrics.answered(prompt_tokens=20, generation_tokens=5, prompt_seconds=0.25, decode_seconds=1.5)
    sums = [figure(metrics, f"{name}_sum") for name in ("request_prompt_tokens", "request_generation_tokens")]
    assert sums == [20, 5]
    assert [figure(metrics, f"{phase}_seconds_sum") for phase in ("prompt", "decode")] == [0.25, 1.5]


def test_no_code_makes_a_figure_of_its_own(metrics: Metrics) -> None:
    for number in range(100):
        metrics.rejected(f"code-{number}")
    metrics.rejected(None)
    assert figure(metrics, "rejections_total", reason="invalid") == 101
    shown = [line for line in metrics.render()[0].decode().splitlines() if line.startswith("kvell_rejections_total{")]
    assert len(shown) == len(get_args(Rejection))
