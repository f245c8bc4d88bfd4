"""What an engine reports, with everything that a test doesn't care about filled in."""

from typing import Any

from server.engine.request import StepStats
from server.engine.wire import Ready


def step(**changes: Any) -> StepStats:
    """A step that did nothing but this."""
    nothing: dict[str, Any] = {
        "seconds": 0.0,
        "prompt_tokens": 0,
        "recomputed_tokens": 0,
        "decode_tokens": 0,
        "running": 0,
        "waiting": 0,
        "preemptions": 0,
        "groups": (),
    }
    return StepStats(**(nothing | changes))


def ready(**changes: Any) -> Ready:
    """A small engine on torch."""
    usual: dict[str, Any] = {
        "cache_tokens": 160,
        "cache_bytes": 1000,
        "max_model_len": 128,
        "device": "cpu",
        "backend": "torch",
        "dtype": "float32",
        "kv_cache_dtype": "float32",
        "threads": 2,
        "bit_exact": False,
        "load_seconds": 1.5,
        "kernels": "torch",
        "note": "no compiler",
        "quantization": "int4",
    }
    return Ready(**(usual | changes))
