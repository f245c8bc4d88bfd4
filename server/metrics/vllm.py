"""The figures once more, under the names that vLLM's dashboards and llm-d's gateway read (`--metrics-compat vllm`).

Nothing is counted here: each family is one of kvell's, renamed when asked, so that the two can't differ. Names and
labels are vLLM's (its v1 metrics); docs/metrics.md says which figure is which.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# vLLM's name -> ours, both without the _total of counters
RENAMED = {
    "num_requests_running": "requests_running",
    "num_requests_waiting": "requests_waiting",
    "kv_cache_usage_perc": "kv_cache_usage_ratio",
    "gpu_cache_usage_perc": "kv_cache_usage_ratio",
    "prompt_tokens": "prompt_tokens",
    "generation_tokens": "generation_tokens",
    "num_preemptions": "preemptions",
    "prefix_cache_queries": "prompt_tokens",
    "prefix_cache_hits": "cached_prompt_tokens",
    "gpu_prefix_cache_queries": "prompt_tokens",
    "gpu_prefix_cache_hits": "cached_prompt_tokens",
    "request_success": "choices",
    "time_to_first_token_seconds": "time_to_first_token_seconds",
    "inter_token_latency_seconds": "inter_token_seconds",
    "time_per_output_token_seconds": "inter_token_seconds",
    "e2e_request_latency_seconds": "request_seconds",
    "request_queue_time_seconds": "queue_seconds",
    "request_prefill_time_seconds": "prompt_seconds",
    "request_decode_time_seconds": "decode_seconds",
    "request_prompt_tokens": "request_prompt_tokens",
    "request_generation_tokens": "request_generation_tokens",
    "iteration_tokens_total": "step_tokens",  # a histogram, whatever its name
}
FINISHED = {"stop": "stop", "length": "length", "cancelled": "abort", "error": "error"}


@dataclass(slots=True, eq=False)  # registries keep collectors by identity
class VllmNames(Collector):
    """vLLM's families, made of those that `source` has at the time. cache_tokens: None until an engine has loaded."""

    source: Callable[[], Iterable[Metric]]
    model_name: str
    block_size: int
    cache_tokens: int | None = None

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        ours = {family.name: family for family in self.source()}
        labels = {"model_name": self.model_name, "engine": "0"}
        for name, our_name in RENAMED.items():
            yield _renamed(ours[f"kvell_{our_name}"], f"vllm:{name}", labels)
        if self.cache_tokens is not None:
            info = {"block_size": str(self.block_size), "num_gpu_blocks": str(self.cache_tokens // self.block_size)}
            family = GaugeMetricFamily("vllm:cache_config_info", "The KV cache's shape.", labels=[*labels, *info])
            family.add_metric([*labels.values(), *info.values()], 1.0)
            yield family


def _renamed(ours: Metric, name: str, labels: Mapping[str, str]) -> Metric:
    family = Metric(name, ours.documentation, ours.type)
    for sample in ours.samples:
        own = dict(sample.labels)
        if reason := own.pop("finish_reason", None):
            own["finished_reason"] = FINISHED[reason]
        family.add_sample(name + sample.name.removeprefix(ours.name), {**labels, **own}, sample.value)
    return family
