"""The messages between the API process and the engine process: length-prefixed msgpack over one socket pair.

API to engine: `Start` once, then `Submit`, `Cancel`, `Ping`. Engine to API: `Ready` or `Failed` once, then `Step`, `Pong`.
End of file in either direction means that the other process is gone.
"""

import struct

import msgspec

from server.config import EngineConfig
from server.engine.request import Request, StepStats, TokenEvent


class Start(msgspec.Struct, frozen=True, tag=True):
    """Load this and get ready."""

    config: EngineConfig


class Submit(msgspec.Struct, frozen=True, tag=True):
    """New work, already checked. Requests of one message are admitted together, in order."""

    requests: tuple[Request, ...]


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Stop these; their blocks come back before the next step. Unknown ids are ignored: they ended meanwhile."""

    request_ids: tuple[str, ...]


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Asks for a Pong between two steps: proof of progress, not of mere life."""

    number: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded and the cache allocated."""

    cache_tokens: int  # tokens of full-attention KV that fit at once
    cache_bytes: int
    max_model_len: int
    device: str
    backend: str
    dtype: str
    kv_cache_dtype: str
    threads: int
    bit_exact: bool
    load_seconds: float


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Loading goes on: fraction 0..1 of the bytes read."""

    what: str
    fraction: float


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine can't start; reason is one line for the user."""

    reason: str


class Step(msgspec.Struct, frozen=True, tag=True):
    """What one step brought, to all requests it touched."""

    events: tuple[TokenEvent, ...]
    stats: StepStats


class Pong(msgspec.Struct, frozen=True, tag=True):
    """Answers a Ping."""

    number: int


ToEngine = Start | Submit | Cancel | Ping
ToApi = Ready | Progress | Failed | Step | Pong

LENGTH = struct.Struct("<I")


def frame(message: ToEngine | ToApi) -> bytes:
    """The bytes of one message on the socket: its length (4 bytes, little-endian), then msgpack."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body
