"""The figures: what each counts, and who reports it.

Two parties report here. The service reports what the engine says: steps, readiness, losses, restarts. The API reports
what users got: requests, their outcomes, delivered tokens and their timing. Counters only ever add what a report says
was new, so they stay monotone when the engine restarts.
"""

import time
from collections import deque
from collections.abc import Callable
from itertools import product
from statistics import median
from typing import get_args

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from server.engine.request import FinishReason, StepStats
from server.engine.wire import Ready
from server.metrics.names import (
    SECONDS,
    STEP_TOKENS,
    TOKENS,
    CacheState,
    DiskAction,
    Endpoint,
    Outcome,
    Phase,
    Rejection,
)
from server.metrics.rates import Rates
from server.metrics.vllm import VllmNames

RECENT = 32  # first tokens, for the live view's median


class Metrics:
    """The server's figures. Call from the event loop's thread."""

    def __init__(self, *, version: str = "0", clock: Callable[[], float] = time.monotonic) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._vllm: VllmNames | None = None
        self._shown = self.registry
        self._num_preempted = 0
        self._latest: StepStats | None = None
        self._recent_first: deque[float] = deque(maxlen=RECENT)
        ProcessCollector(registry=self.registry)
        self._rates = Rates(clock)
        self.registry.register(self._rates)
        self._make_request_figures()
        self._make_engine_figures()
        self._gauge("build_info", "Always 1; the label says what runs.", "version").labels(version).set(1)

    def add_vllm_names(self, model_name: str, *, block_size: int) -> None:
        """From now on each scrape has the figures under vLLM's names, too, labelled with the model."""
        self._vllm = VllmNames(self.registry.collect, model_name, block_size)
        self._shown = CollectorRegistry()
        self._shown.register(self.registry)
        self._shown.register(self._vllm)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"kvell_{name}", help, labels, registry=self.registry)

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return Gauge(f"kvell_{name}", help, labels, registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
        return Histogram(f"kvell_{name}", help, buckets=buckets, registry=self.registry)

    def _make_request_figures(self) -> None:
        self._requests = self._counter("requests_total", "HTTP requests that ended.", "endpoint", "outcome")
        self._choices = self._counter("choices_total", "Answers that ended, n per request.", "finish_reason")
        self._rejections = self._counter("rejections_total", "Requests refused before any work, by cause.", "reason")
        self._prompt = self._counter(
            "prompt_tokens_total", "Prompt tokens of answered requests, cached ones included, recomputed ones not."
        )
        self._cached = self._counter("cached_prompt_tokens_total", "Prompt tokens that came from the prefix cache.")
        self._generated = self._counter("generation_tokens_total", "Generated tokens that were delivered.")
        self._discarded = self._counter(
            "discarded_tokens_total", "Generated tokens that nobody got: past a stop string, or after a cancel."
        )
        self._first = self._histogram("time_to_first_token_seconds", "From a request's arrival to its first token.")
        self._gap = self._histogram("inter_token_seconds", "Between two deliveries of one answer, per token.")
        self._queue = self._histogram("queue_seconds", "Time that a sequence waited to be admitted.")
        self._request = self._histogram("request_seconds", "From a generation request's arrival to its end.")
        self._prompt_time = self._histogram(
            "prompt_seconds", "From an answered request's admission to its first token."
        )
        self._decode_time = self._histogram("decode_seconds", "From an answered request's first token to its last.")
        self._prompt_length = self._histogram("request_prompt_tokens", "Prompt tokens of an answered request.", TOKENS)
        self._answer_length = self._histogram(
            "request_generation_tokens", "Generated tokens of an answered request, all choices.", TOKENS
        )
        for endpoint, outcome in product(get_args(Endpoint), get_args(Outcome)):
            self._requests.labels(endpoint, outcome)
        for reason in get_args(FinishReason):
            self._choices.labels(reason)
        for reason in get_args(Rejection):
            self._rejections.labels(reason)

    def _make_engine_figures(self) -> None:
        self._running = self._gauge("requests_running", "Sequences being computed.")
        self._waiting = self._gauge("requests_waiting", "Sequences waiting to be admitted.")
        self._tokens_waiting = self._gauge("tokens_waiting", "Prompt and output that the waiting sequences may take.")
        self._bytes = self._gauge("kv_cache_bytes", "KV cache memory by state.", "state")
        self._blocks = self._gauge("kv_cache_blocks", "KV cache blocks by state, all groups together.", "state")
        self._usage = self._gauge("kv_cache_usage_ratio", "Share of the KV cache's bytes that live sequences hold.")
        self._preemptions = self._counter("preemptions_total", "Sequences that gave up their blocks to others.")
        self._recomputed = self._counter("recomputed_tokens_total", "Tokens run again because of a preemption.")
        self._computed = self._counter("computed_tokens_total", "Tokens run, recomputed ones included.", "phase")
        for phase in get_args(Phase):
            self._computed.labels(phase)
        self._disk_bytes = self._gauge("prefix_cache_disk_bytes", "What the blocks in --prefix-cache-dir take.")
        self._disk_blocks = self._counter(
            "prefix_cache_disk_blocks_total", "Blocks read from, written to, and refused from disk.", "action"
        )
        for action in get_args(DiskAction):
            self._disk_blocks.labels(action)
        self._step = self._histogram("step_seconds", "Duration of an engine step.")
        self._step_tokens = self._histogram("step_tokens", "Tokens run in an engine step.", STEP_TOKENS)
        self._up = self._gauge("engine_up", "1 while the engine makes progress.")
        self._restarts = self._counter("engine_restarts_total", "Engines started after the first.")
        self._load = self._gauge("engine_load_seconds", "How long the engine took to load.")
        self._backend = self._gauge(
            "backend_info",
            "Always 1; the labels say what computes, and why not something faster.",
            *("backend", "kernels", "device", "dtype", "kv_cache_dtype", "note", "quantization"),
        )
        self._clear_cache()

    # what the engine says: called by server.engine.service

    def engine_ready(self, info: Ready, *, restarted: bool) -> None:
        """An engine has loaded."""
        self._up.set(1)
        self._load.set(info.load_seconds)
        if restarted:
            self._restarts.inc()
        if self._vllm is not None:
            self._vllm.cache_tokens = info.cache_tokens
        self._backend.clear()
        labels = info.backend, info.kernels, info.device, info.dtype, info.kv_cache_dtype, info.note, info.quantization
        self._backend.labels(*labels).set(1)

    def engine_responsive(self, responsive: bool) -> None:
        """The engine fell silent, or answered again."""
        self._up.set(1 if responsive else 0)

    def tokens_waiting(self, tokens: int) -> None:
        """So many tokens may be taken by those that wait to be admitted."""
        self._tokens_waiting.set(tokens)

    def engine_lost(self) -> None:
        """The engine is gone, and with it everything it held."""
        self._up.set(0)
        self._latest = None
        self._running.set(0)
        self._waiting.set(0)
        self._clear_cache()

    def _clear_cache(self) -> None:
        for state in get_args(CacheState):
            self._bytes.labels(state).set(0)
            self._blocks.labels(state).set(0)
        self._usage.set(0)

    def step(self, stats: StepStats) -> None:
        """A step ended, or a cancel changed how things stand (then without tokens)."""
        self._latest = stats
        self._running.set(stats.running)
        self._waiting.set(stats.waiting)
        self._preemptions.inc(stats.preemptions)
        self._num_preempted += stats.preemptions
        self._recomputed.inc(stats.recomputed_tokens)
        self._set_cache(stats)
        self._computed.labels("prompt").inc(stats.prompt_tokens)
        self._computed.labels("decode").inc(stats.decode_tokens)
        if stats.disk is not None:
            self._disk_bytes.set(stats.disk.num_bytes)
            for action in get_args(DiskAction):
                self._disk_blocks.labels(action).inc(getattr(stats.disk, f"blocks_{action}"))
        tokens = stats.prompt_tokens + stats.decode_tokens
        if tokens:
            self._step.observe(stats.seconds)
            self._step_tokens.observe(tokens)
            self._rates.add(stats.prompt_tokens, stats.decode_tokens)

    def _set_cache(self, stats: StepStats) -> None:
        total = sum((group.used + group.cached + group.free) * group.block_bytes for group in stats.groups)
        for state in get_args(CacheState):
            blocks = [getattr(group, state) for group in stats.groups]
            size = sum(count * group.block_bytes for count, group in zip(blocks, stats.groups, strict=True))
            self._blocks.labels(state).set(sum(blocks))
            self._bytes.labels(state).set(size)
            if state == "used":
                self._usage.set(size / total if total else 0)

    # what users got: called by server.api

    def prompt_answered(self, *, prompt_tokens: int, cached_tokens: int) -> None:
        """A prompt's answer began. Once per prompt, however many choices, with the numbers that usage reports."""
        self._prompt.inc(prompt_tokens)
        self._cached.inc(cached_tokens)

    def admitted(self, queue_seconds: float) -> None:
        """A sequence got its first token, having waited so long in the engine's queue."""
        self._queue.observe(queue_seconds)

    def first_token(self, seconds: float) -> None:
        """A request's first token is there, so long after the request arrived."""
        self._first.observe(seconds)
        self._recent_first.append(seconds)

    def next_tokens(self, count: int, seconds: float) -> None:
        """`count` further tokens of one answer came `seconds` after the ones before: that many gaps of equal length."""
        for _ in range(count):
            self._gap.observe(seconds / count)

    def delivered(self, tokens: int) -> None:
        """So many more generated tokens count as the user's; summed over a request it is usage.completion_tokens."""
        self._generated.inc(tokens)

    def discarded(self, tokens: int) -> None:
        """So many generated tokens nobody gets. The service reports those that arrive after a cancel."""
        self._discarded.inc(tokens)

    def choice_finished(self, reason: FinishReason) -> None:
        """One answer ended."""
        self._choices.labels(reason).inc()

    def answered(
        self, *, prompt_tokens: int, generation_tokens: int, prompt_seconds: float, decode_seconds: float
    ) -> None:
        """A generation request was answered in full, with the numbers that its usage and its `kvell` object report."""
        self._prompt_length.observe(prompt_tokens)
        self._answer_length.observe(generation_tokens)
        self._prompt_time.observe(prompt_seconds)
        self._decode_time.observe(decode_seconds)

    def request_finished(self, endpoint: Endpoint, outcome: Outcome, *, seconds: float | None = None) -> None:
        """An HTTP request ended; seconds where it generated.

        ok: answered in full. cancelled: the client left. error: failed after work began (or a bug). refused: the
        user's fault. unavailable: ours, before any work (overloaded, restarting, shutting down).
        """
        self._requests.labels(endpoint, outcome).inc()
        if seconds is not None:
            self._request.observe(seconds)

    def rejected(self, code: str | None) -> None:
        """A request was refused before any work, with this error code; codes of no own bucket count as "invalid"."""
        self._rejections.labels(code if code in get_args(Rejection) else "invalid").inc()

    def live(self) -> dict[str, object]:
        """What the live view shows, as JSON goes: how things stand, and averages over the last seconds."""
        prompt, decode = self._rates.per_second()
        stats = self._latest
        return {
            "running": stats.running if stats else 0,
            "waiting": stats.waiting if stats else 0,
            "preemptions": self._num_preempted,
            "tokens_per_second": {"prompt": prompt, "decode": decode},
            "time_to_first_token_seconds": median(self._recent_first) if self._recent_first else None,
            "groups": [msgspec.structs.asdict(group) for group in stats.groups] if stats else [],
        }

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The body and content type for a scrape with this Accept header.

        With vLLM's names it is the text format whatever is asked for: the library's OpenMetrics writes samples without
        the colons (prometheus/client_python issue 1177), so that a real Prometheus would read other names.
        """
        if self._vllm is not None:
            return self._encoded("")
        try:
            return self._encoded(accept)
        except (TypeError, ValueError):  # the library trips over a version that is no number
            return self._encoded("")

    def _encoded(self, accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        return encode(self._shown), content_type
