"""A real Prometheus scrapes a real server under load whose engine is killed. Needs Debian's package prometheus.

`make test-prometheus` runs it; elsewhere it is skipped by name where Prometheus is not installed.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.helpers.expressions import alerts, panels
from tests.helpers.live_server import LiveServer, at_once
from tests.helpers.prometheus_server import Prometheus, running_prometheus
from tests.helpers.scrapes import assert_same, promised, scraped
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)"),
]

SMALL = ("--threads", "1", "--kv-cache-memory", "64MiB", "--metrics-compat", "vllm", "--served-model-name", "tiny")
SUMMED = "kvell_choices_total{finish_reason='length'}"
REQUESTS = [
    {"prompt": f"number {number % 5} of the many requests that there are", "max_tokens": 4 + number % 7}
    for number in range(24)
]

Usage = dict[str, Any]


@dataclass(frozen=True)
class Worked:
    """A time of work: the answers' usages, and what the figures grew by meanwhile, as Prometheus has them."""

    usages: list[Usage]
    grown: dict[str, float]

    def said(self, field: str) -> float:
        return sum(usage[field] for usage in self.usages)


@dataclass(frozen=True)
class Watched:
    """A server that has worked, lost its engine and worked again; Prometheus saw it all."""

    server: LiveServer
    prometheus: Prometheus
    times: tuple[Worked, Worked]


def ask(server: LiveServer, body: dict[str, Any]) -> Usage:
    answered = server.request("POST", "/v1/completions", body | {"ignore_eos": True})
    assert answered.status == 200, answered.body
    usage: Usage = answered.json()["usage"]
    return usage


def totals(prometheus: Prometheus) -> dict[str, float]:
    """Every counter of kvell's, with its labels; those of histograms, too."""
    rows = prometheus.query('{__name__=~"kvell_.+_(total|sum|count)"}')
    return {key(row["metric"]): float(row["value"][1]) for row in rows}


def key(metric: dict[str, str]) -> str:
    labels = {label: value for label, value in metric.items() if label not in ("__name__", "instance", "job")}
    return metric["__name__"] + "".join(f",{label}={value}" for label, value in sorted(labels.items()))


def work(server: LiveServer, prometheus: Prometheus) -> Worked:
    """Answers, and beside them what can go wrong; until Prometheus knows."""
    before, usages = totals(prometheus), []
    for wrong in ({"prompt": "a", "model": "no-such"}, {"prompt": "a", "max_tokens": -1}, {"prompt": "a" * 90_000}):
        assert server.request("POST", "/v1/completions", wrong).status in (400, 404)
    for start in range(0, len(REQUESTS), 6):
        usages += at_once(*[lambda body=body: ask(server, body) for body in REQUESTS[start : start + 6]])
    assert all(isinstance(usage, dict) for usage in usages), usages
    target = before.get("kvell_choices_total,finish_reason=length", 0) + len(usages)
    prometheus.until(f"{SUMMED} == {target}", "Prometheus doesn't hear of all answers")
    after = totals(prometheus)
    return Worked(usages, {name: value - before.get(name, 0) for name, value in after.items()})


def lose_the_engine(server: LiveServer, prometheus: Prometheus) -> None:
    """While it answers."""
    with server.stream("POST", "/v1/completions", {"prompt": "go on", "max_tokens": 900, "stream": True}) as cut:
        cut.read_events(3)
        os.kill(server.engine_pid, signal.SIGKILL)
        assert cut.rest().events()[-2]["error"]["code"] == "engine_unavailable"
    prometheus.until("kvell_engine_restarts_total == 1 and kvell_engine_up == 1", "no new engine")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    model = make_model_dir(tmp_path_factory.mktemp("models") / "tiny")
    data = tmp_path_factory.mktemp("prometheus")
    with (
        LiveServer(str(model), *SMALL) as server,
        running_prometheus(f"127.0.0.1:{server.wait_ready().port}", data) as prometheus,
    ):
        prometheus.until("kvell_engine_up == 1", "Prometheus never saw the engine")
        first = work(server, prometheus)
        lose_the_engine(server, prometheus)
        yield Watched(server, prometheus, (first, work(server, prometheus)))


def test_the_figures_are_the_ones_on_the_page(watched: Watched) -> None:
    assert_same(scraped(watched.server.request("GET", "/metrics").body.decode()), promised())


def test_prometheus_has_the_names_as_they_are_written(watched: Watched) -> None:
    names = set(watched.prometheus.ask("label/__name__/values"))
    for name, figure in promised().items():
        assert (name + "_bucket" * (figure.type == "histogram")) in names


def test_promtool_has_nothing_to_say(watched: Watched) -> None:
    text = watched.server.request("GET", "/metrics").body
    # of vLLM's names there is: colons, and "perc"
    ours = b"".join(line for line in text.splitlines(keepends=True) if b"vllm:" not in line)
    found = subprocess.run(["promtool", "check", "metrics"], input=ours, capture_output=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")


def test_no_counter_goes_down_when_the_engine_is_lost(watched: Watched) -> None:
    rows = watched.prometheus.query('{__name__=~"(kvell_|vllm:|process_cpu).+_(total|sum|count|bucket)"}[10m]')
    assert len(rows) > 500
    for row in rows:
        values = [float(value) for _, value in row["values"]]
        assert values == sorted(values), row["metric"]
    assert watched.prometheus.value("kvell_engine_restarts_total") == 1


@pytest.mark.parametrize("time", [0, 1], ids=["before the kill", "after it"])
def test_sums_over_requests_are_the_figures(watched: Watched, time: int) -> None:
    worked = watched.times[time]
    assert worked.grown["kvell_prompt_tokens_total"] == worked.said("prompt_tokens")
    assert worked.grown["kvell_generation_tokens_total"] == worked.said("completion_tokens")
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in worked.usages)
    assert worked.grown["kvell_cached_prompt_tokens_total"] == cached > 0
    assert worked.grown["kvell_request_prompt_tokens_sum"] == worked.said("prompt_tokens")
    assert worked.grown["kvell_request_generation_tokens_sum"] == worked.said("completion_tokens")
    answers = len(worked.usages)
    assert worked.grown["kvell_requests_total,endpoint=completions,outcome=ok"] == answers
    assert worked.grown["kvell_requests_total,endpoint=completions,outcome=refused"] == 3
    for name in ("time_to_first_token", "queue", "prompt", "decode", "request"):
        assert worked.grown[f"kvell_{name}_seconds_count"] == answers, name


@pytest.mark.parametrize("time", [0, 1], ids=["before the kill", "after it"])
def test_sums_over_requests_are_what_the_engine_computed(watched: Watched, time: int) -> None:
    grown, answers = watched.times[time].grown, len(watched.times[time].usages)
    prompt, decode = (grown[f"kvell_computed_tokens_total,phase={phase}"] for phase in ("prompt", "decode"))
    assert prompt == (
        grown["kvell_prompt_tokens_total"]
        - grown["kvell_cached_prompt_tokens_total"]
        + grown["kvell_recomputed_tokens_total"]
    )
    # an answer's first token comes with the last of its prompt
    assert decode + answers == grown["kvell_generation_tokens_total"] + grown["kvell_discarded_tokens_total"]
    assert grown["kvell_step_tokens_sum"] == prompt + decode


def test_the_cache_is_all_there_and_gone_with_the_engine(watched: Watched) -> None:
    size = watched.prometheus.value("sum(kvell_kv_cache_bytes)")
    (announced,) = [line for line in watched.server.output if "KV cache" in line]
    assert f" {size / 2**20:.0f} MiB" in announced
    tokens = re.search(r"(\d+) tokens", announced)
    assert tokens
    assert watched.prometheus.value("sum(kvell_kv_cache_blocks)") == int(tokens[1]) / 16
    assert watched.prometheus.value("min_over_time(kvell_kv_cache_bytes{state='free'}[10m])") == 0


def test_tokens_per_second_were_seen_by_phase(watched: Watched) -> None:
    for phase in ("prompt", "decode"):
        assert watched.prometheus.value(f"max_over_time(kvell_tokens_per_second{{phase='{phase}'}}[10m])") > 0


def test_a_step_of_a_millisecond_is_told_from_one_of_three(watched: Watched) -> None:
    bounds = watched.prometheus.query("kvell_step_seconds_bucket")
    finest = sorted(float(row["metric"]["le"]) for row in bounds)[:3]
    assert finest == [0.001, 0.002, 0.003]


@pytest.mark.parametrize(("panel", "expression"), panels())
def test_every_line_of_the_dashboard_has_data(watched: Watched, panel: str, expression: str) -> None:
    rows = watched.prometheus.query(expression)
    assert rows, panel
    assert all(row["value"][1] != "NaN" for row in rows), panel


@pytest.mark.parametrize(("alert", "expression"), alerts())
def test_every_alert_can_be_evaluated(watched: Watched, alert: str, expression: str) -> None:
    watched.prometheus.query(expression)
    (group,) = watched.prometheus.ask("rules")["groups"]
    (rule,) = [rule for rule in group["rules"] if rule["name"] == alert]
    assert rule["health"] in ("ok", "unknown"), rule
    assert not rule.get("lastError")


def test_vllm_s_names_have_the_same_values(watched: Watched) -> None:
    for theirs, ours in (
        ("prompt_tokens_total", "prompt_tokens_total"),
        ("num_preemptions_total", "preemptions_total"),
    ):
        same = f'vllm:{theirs}{{model_name="tiny"}} == on (instance) kvell_{ours}'
        assert len(watched.prometheus.query(same)) == 1, theirs
    assert watched.prometheus.value('vllm:cache_config_info{block_size="16"}') == 1
