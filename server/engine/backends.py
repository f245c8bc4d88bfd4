"""Which kernels compute: native ones where they can, else torch, and why, in one line. Engine process only: torch.

Knows settings and what "auto" means here; knows no cache sizes and no requests.
"""

import hashlib
from dataclasses import dataclass

import torch

from cache.pool import KVPool
from model.attention.reference import TorchAttention
from model.checkpoint.load import Progress, Read
from model.checkpoint.source import Checkpoint
from model.decoder import Decoder
from model.kernels.native import LIBRARY, NativeUnavailable, Team, proven_team
from model.load import load_model
from model.native_load import load_native_model
from model.native_runner import NativeRunner
from model.runner import ModelRunner
from server.config import EngineConfig
from server.engine.errors import StartupFailed

KV_DTYPES = {  # that native can keep
    "auto": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "int8": torch.int8,
}


@dataclass(frozen=True, slots=True)
class Backend:
    """team None: torch computes. note says in one line why it isn't what one would expect; usually empty."""

    team: Team | None
    note: str = ""

    @property
    def name(self) -> str:
        """As in --backend."""
        return "torch" if self.team is None else "native"

    @property
    def kernels(self) -> str:
        """The instruction set."""
        return "torch" if self.team is None else self.team.isa

    @property
    def kernels_version(self) -> str:
        """Tells builds of the kernels apart: the beginning of the library's SHA-256, or torch's version."""
        if self.team is None:
            return str(torch.__version__)
        return hashlib.sha256(LIBRARY.read_bytes()).hexdigest()[:16]

    def load(
        self,
        checkpoint: Checkpoint,
        *,
        device: torch.device,
        dtype: torch.dtype,
        on_progress: Progress,
        read: Read | None = None,
    ) -> Decoder:
        """The model with weights laid out for these kernels; read as in `load_model`. Raises CheckpointError."""
        if self.team is not None:
            return load_native_model(checkpoint, self.team, on_progress=on_progress, read=read)
        return load_model(checkpoint, device=device, dtype=dtype, on_progress=on_progress, read=read)

    def runner(
        self, decoder: Decoder, pool: KVPool, device: torch.device, *, max_tokens: int, max_len: int
    ) -> ModelRunner | NativeRunner:
        """What runs the decoder: at most max_tokens in a step, max_len in a sequence."""
        if self.team is not None:
            return NativeRunner(decoder, pool, self.team, max_tokens=max_tokens, max_len=max_len)
        return ModelRunner(decoder, pool, TorchAttention(), device)


def choose_backend(config: EngineConfig, device: torch.device, threads: int) -> Backend:
    """What --backend means on this machine with these settings. Raises StartupFailed where native can't be had."""
    reason = "" if config.backend == "torch" else _unfit(config, device)
    if config.backend == "torch" or (config.backend == "auto" and reason):
        return Backend(None)
    try:
        if reason:
            raise NativeUnavailable(reason)
        team, note = proven_team(threads)
    except NativeUnavailable as error:
        if config.backend == "native":
            raise StartupFailed(f"--backend is native, but {error}") from error
        return Backend(None, f"no native kernels, torch computes: {error}")
    return Backend(team, note)


def _unfit(config: EngineConfig, device: torch.device) -> str:
    """What the settings ask for that native kernels can't do; empty when they can."""
    if device.type != "cpu":
        return f"--device is {device.type}: native kernels are for CPUs"
    if config.dtype not in ("auto", "float32"):
        return f"--dtype is {config.dtype}: native kernels compute in float32"
    if config.kv_cache_dtype not in KV_DTYPES:
        return f"--kv-cache-dtype is {config.kv_cache_dtype}; native kernels know {', '.join(KV_DTYPES)}"
    return ""
