"""One frozen tree of settings, built in one place: flag, else KVELL_ environment variable, else default."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Device = Literal["auto", "cpu", "cuda"]
Backend = Literal["auto", "native", "torch"]
Dtype = Literal["auto", "float32", "bfloat16", "float64"]
KVDtype = Literal["auto", "bfloat16", "float32", "int8", "float64"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the engine process needs to know. model_path is a local .gguf file or Hugging Face directory.

    kv_cache_bytes None: a quarter of free memory, capped at what max_num_seqs full contexts need.
    max_model_len None: the model's own context length. threads None: one per core. float64 exists for tests.
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
    max_waiting_requests: int = 1024
    drain_timeout_s: float = 30.0
    engine_timeout_s: float = 30.0  # without any sign of progress for so long, the engine counts as hung
    sse_ping_s: float = 15.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
