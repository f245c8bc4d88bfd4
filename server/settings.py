"""Every setting by name: how its text is read, what is allowed, what help says.

Knows no dataclasses and no command line: `server.config` makes the first of these values, `server.cli` shows the help.
"""

from server.setting import (
    SIZES,
    Parser,
    Setting,
    any_path,
    any_text,
    http_address,
    one_of,
    or_off,
    origins,
    parse_bytes,
    path_text,
    seconds,
    switch,
    whole,
)

DEFAULT_MODEL = "smollm2-135m-instruct"


def _server(name: str, field: str, parse: Parser, allowed: str, default: str, help: str) -> Setting:
    return Setting(name, field, parse, allowed, default, help)


def _engine(name: str, field: str | None, parse: Parser, allowed: str, default: str, help: str) -> Setting:
    return Setting(name, field, parse, allowed, default, help, engine=True)


def _limit(name: str, low: int, high: int, default: str, help: str, *, field: str | None = None) -> Setting:
    return _engine(name, field or name.replace("-", "_"), whole(low, high), f"{low} to {high}", default, help)


SETTINGS: tuple[Setting, ...] = (
    _server(
        "model", "model", any_text, "a .gguf file, a directory, hf:owner/name, a known name", DEFAULT_MODEL, "model"
    ),
    _server("host", "host", any_text, "an address or host name", "127.0.0.1", "address to listen on"),
    _server("port", "port", whole(0, 65535), "0 to 65535", "8000", "port to listen on; 0 takes a free one"),
    _server("served-model-name", "served_model_name", any_text, "any text", "the model's own", "id in /v1/models"),
    _engine("device", "device", one_of("auto", "cpu", "cuda"), "auto, cpu, cuda", "auto", "where the model runs"),
    _engine(
        "backend",
        "backend",
        one_of("auto", "native", "torch"),
        "auto, native, torch",
        "auto",
        "kernels to use; auto: native ones on a CPU where they can be had",
    ),
    _engine(
        "dtype",
        "dtype",
        one_of("auto", "float32", "bfloat16", "float64"),
        "auto, float32, bfloat16, float64",
        "auto",
        "type to compute in; float64 is slow and for exact comparisons",
    ),
    _engine(
        "quantize",
        "quantize",
        one_of("none", "int8", "int4"),
        "none, int8, int4",
        "none",
        "round full-precision weights while loading; int4 leaves the most sensitive ones in int8",
    ),
    _limit("threads", 1, 1024, "one per core", "threads of the engine"),
    _limit("max-model-len", 1, 100_000_000, "the model's own", "longest prompt and answer, in tokens"),
    _limit("max-num-seqs", 1, 4096, "64", "sequences that run at once"),
    _limit("max-num-batched-tokens", 1, 1_048_576, "512", "most tokens in one step"),
    _limit("target-inter-token-ms", 1, 60_000, "100", "gap between tokens that prompts must not exceed, in ms"),
    _limit("block-size", 1, 1024, "16", "tokens per KV cache block"),
    _engine("kv-cache-memory", "kv_cache_bytes", parse_bytes, SIZES, "a quarter of free memory", "KV cache size"),
    _engine(
        "kv-cache-dtype",
        "kv_cache_dtype",
        one_of("auto", "bfloat16", "float32", "float64", "int8"),
        "auto, bfloat16, float32, float64, int8",
        "auto",
        "type of cached keys and values; int8: codes with a scale per token and head, in half of bfloat16's memory",
    ),
    _engine("prefix-cache", "prefix_cache", switch, "on, off", "on", "reuse the KV of equal prompt beginnings"),
    _engine(
        "prefix-cache-dir",
        "prefix_cache_dir",
        path_text,
        "path of a folder",
        "none",
        "folder that keeps the KV of prompts beyond a restart",
    ),
    _engine("prefix-cache-size", "prefix_cache_bytes", parse_bytes, SIZES, "4GiB", "most that this folder may hold"),
    _server(
        "max-waiting-requests",
        "max_waiting_requests",
        whole(0, 1_000_000),
        "0 to 1000000",
        "1024",
        "requests that may wait before more are refused",
    ),
    _server(
        "max-waiting-tokens",
        "max_waiting_tokens",
        whole(1, 10**12),
        "1 to 10^12",
        "no limit",
        "tokens, of prompts and outputs, that may wait before more are refused",
    ),
    _server(
        "max-queue-seconds",
        "max_queue_s",
        or_off(seconds(0.01, 86_400)),
        "0.01 to 86400 seconds, off",
        "1",
        "seconds that a request may have to wait for its turn; more are refused once the line has stood for so long",
    ),
    _server(
        "default-timeout",
        "default_timeout_s",
        seconds(0.001, 86_400),
        "0.001 to 86400 seconds",
        "none",
        "deadline of requests that bring none",
    ),
    Setting(
        "api-key", "api_key", any_text, "any text that is not empty", "none", "key that requests need", secret=True
    ),
    _server(
        "api-key-file", "api_key_file", any_path, "path of a file", "none", "file with keys, one `name: key` a line"
    ),
    _server("open-metrics", "open_metrics", switch, "on, off", "off", "/metrics needs no key"),
    _server(
        "metrics-compat",
        "metrics_compat",
        one_of("none", "vllm"),
        "none, vllm",
        "none",
        "with vllm, /metrics has the figures under vLLM's names, too, for its dashboards and llm-d's gateway",
    ),
    _server("share-prefixes", "share_prefixes", switch, "on, off", "off", "prefix cache shared between keys"),
    _server(
        "trust-request-chat-template",
        "trust_request_chat_template",
        switch,
        "on, off",
        "off",
        "a chat request may bring its own template",
    ),
    _server(
        "cors-origins",
        "cors_origins",
        origins,
        "origins with commas between, or *",
        "none",
        "origins whose pages a browser lets ask this server",
    ),
    _server("tls-certfile", "tls_certfile", any_path, "path of a file", "none", "certificate chain in PEM, for https"),
    _server("tls-keyfile", "tls_keyfile", any_path, "path of a file", "none", "the certificate's private key in PEM"),
    _server(
        "drain-timeout",
        "drain_timeout_s",
        seconds(0, 86_400),
        "0 to 86400 seconds",
        "30",
        "seconds that running requests get to finish after SIGTERM",
    ),
    _server(
        "engine-timeout",
        "engine_timeout_s",
        seconds(1, 3600),
        "1 to 3600 seconds",
        "30",
        "seconds without progress after which the engine is restarted",
    ),
    _server("sse-ping", "sse_ping_s", seconds(0.1, 3600), "0.1 to 3600 seconds", "15", "seconds between stream pings"),
    _server(
        "log-level",
        "log_level",
        one_of("debug", "info", "warning", "error"),
        "debug, info, warning, error",
        "info",
        "least important log lines to write",
    ),
    _server(
        "log-format",
        "log_format",
        one_of("human", "json"),
        "human, json",
        "human",
        "with json, one JSON object a line on standard error, also for what the engine's process says",
    ),
    _server(
        "log-prompts", "log_prompts", switch, "on, off", "off", "prompts and answers are part of a request's log line"
    ),
    _server(
        "otlp-endpoint",
        "otlp_endpoint",
        http_address,
        "an http address",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "base address of an OpenTelemetry collector (OTLP over http) that gets traces; needs the otel extra",
    ),
)
