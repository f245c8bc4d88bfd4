"""One frozen tree of settings, built in one place: flag, else KVELL_ environment variable, else default.

Knows no HTTP and no torch, and doesn't look for the model on disk. The names and their checks: `server.settings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from server.setting import ConfigError, Setting
from server.settings import DEFAULT_MODEL, SETTINGS

Device = Literal["auto", "cpu", "cuda"]
Backend = Literal["auto", "native", "torch"]
Dtype = Literal["auto", "float32", "bfloat16", "float64"]
KVDtype = Literal["auto", "bfloat16", "float32", "int8", "float64"]
Quantize = Literal["none", "int8", "int4"]
MetricsCompat = Literal["none", "vllm"]
LogFormat = Literal["human", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the engine process needs to know. model_path is a local .gguf file or Hugging Face directory.

    kv_cache_bytes None: a quarter of free memory, capped at what max_num_seqs full contexts need.
    max_model_len None: the model's own context length. threads None: one per core. float64 exists for exact tests.
    """

    model_path: str
    device: Device = "auto"
    backend: Backend = "auto"
    dtype: Dtype = "auto"
    kv_cache_dtype: KVDtype = "auto"
    kv_cache_bytes: int | None = None
    block_size: int = 16
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    target_inter_token_ms: int = 100
    prefix_cache: bool = True
    threads: int | None = None
    quantize: Quantize = "none"
    prefix_cache_dir: str | None = None  # None: nothing outlives the process
    prefix_cache_bytes: int = 4 * 2**30  # of files in it


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything `kvell serve` was told."""

    model: str  # as the user wrote it
    engine: EngineConfig
    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: str | None = None
    api_key: str | None = None
    api_key_file: Path | None = None
    open_metrics: bool = False  # /metrics needs no key
    metrics_compat: MetricsCompat = "none"
    share_prefixes: bool = False  # between keys
    trust_request_chat_template: bool = False
    cors_origins: tuple[str, ...] = ()
    tls_certfile: Path | None = None
    tls_keyfile: Path | None = None
    max_waiting_requests: int = 1024
    max_waiting_tokens: int | None = None
    max_queue_s: float | None = 1.0  # None: no limit
    default_timeout_s: float | None = None
    drain_timeout_s: float = 30.0
    engine_timeout_s: float = 30.0  # without any sign of progress for so long, the engine counts as hung
    sse_ping_s: float = 15.0
    log_level: LogLevel = "info"
    log_format: LogFormat = "human"
    log_prompts: bool = False
    otlp_endpoint: str | None = None


def build_config(flags: Mapping[str, str | None], env: Mapping[str, str]) -> ServerConfig:
    """The settings of `flags` (by `Setting.name`, None: not given), else of `env`, else the defaults.

    EngineConfig.model_path is the model as the user wrote it, until the caller has found it on disk.
    Raises ConfigError, whose message is one line for the user.
    """
    if unknown := sorted(set(flags) - {setting.name for setting in SETTINGS}):
        raise ConfigError(f"unknown setting: {', '.join(unknown)}")
    values = {setting: setting.read(text) for setting in SETTINGS if (text := _given(setting, flags, env)) is not None}
    mine: dict[str, Any] = {s.field: value for s, value in values.items() if s.field and not s.engine}
    engine: dict[str, Any] = {s.field: value for s, value in values.items() if s.field and s.engine}
    model = mine.pop("model", DEFAULT_MODEL)
    config = ServerConfig(model=model, engine=EngineConfig(model_path=model, **engine), **mine)
    _check_together(config.engine)
    if (config.tls_certfile is None) != (config.tls_keyfile is None):
        raise ConfigError("--tls-certfile (KVELL_TLS_CERTFILE) and --tls-keyfile (KVELL_TLS_KEYFILE) go together")
    return config


def _given(setting: Setting, flags: Mapping[str, str | None], env: Mapping[str, str]) -> str | None:
    flag = flags.get(setting.name)
    if flag is not None:
        return flag
    text = env.get(setting.env)
    # compose files and unit files write VARIABLE= for "not set"; an empty key is a mistake that must not open the door
    return None if text == "" and not setting.secret else text


def _check_together(engine: EngineConfig) -> None:
    if engine.max_num_batched_tokens < engine.max_num_seqs:
        raise ConfigError(
            f"--max-num-batched-tokens (KVELL_MAX_NUM_BATCHED_TOKENS) is {engine.max_num_batched_tokens}; allowed: "
            f"at least --max-num-seqs, {engine.max_num_seqs}, as every running sequence gets a token in each step"
        )
    if engine.prefix_cache_dir is not None and not engine.prefix_cache:
        raise ConfigError("--prefix-cache-dir (KVELL_PREFIX_CACHE_DIR) needs --prefix-cache on")


def describe(config: ServerConfig) -> dict[str, object]:
    """Every setting by name, for the log and for bug reports; secrets as "set" or "not set"."""
    flat: dict[str, object] = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "engine"}
    flat |= {f.name: getattr(config.engine, f.name) for f in fields(config.engine)}
    flat["api_key"] = "not set" if config.api_key is None else "set"
    return flat
