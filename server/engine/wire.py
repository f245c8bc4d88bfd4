"""The messages between the API process and the engine process: length-prefixed msgpack over one socket pair.

API to engine: `Start` once, then `Submit`, `Cancel`, `Watch`, `Ping`.
Engine to API: `Progress` while loading, `Ready` or `Failed` once, then `Begun`, `Step`, `Pong`.
End of file in either direction means that the other process is gone.
"""

import socket
import struct

import msgspec

from server.config import EngineConfig
from server.engine.request import GroupPicture, Request, StepStats, TokenEvent


class Start(msgspec.Struct, frozen=True, tag=True):
    """Load this and get ready."""

    config: EngineConfig


class Submit(msgspec.Struct, frozen=True, tag=True):
    """New work, already checked. Requests of one message are admitted together, in order."""

    requests: tuple[Request, ...]


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Stop these; their blocks come back before the next step. Unknown ids are ignored: they ended meanwhile."""

    request_ids: tuple[str, ...]


class Watch(msgspec.Struct, frozen=True, tag=True):
    """Somebody looks: send a picture of the blocks every so often, with a step. 0: nobody looks any more."""

    interval_ms: int


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Asks for a Pong between two steps: proof of progress, not of mere life."""

    number: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded and the cache allocated."""

    cache_tokens: int  # tokens of full-attention KV that fit at once
    cache_bytes: int
    max_model_len: int  # as the model or the user limits it; the cache may hold less
    device: str
    backend: str
    dtype: str
    kv_cache_dtype: str
    threads: int
    bit_exact: bool
    load_seconds: float
    kernels: str = ""  # the instruction set of native kernels, or "torch"
    note: str = ""  # one line for the user: why the backend isn't what one would expect
    quantization: str = "none"  # of the weights: int8 or int4 as asked for, else the file's types ("Q4_1+Q8_0")
    kernels_version: str = ""  # tells builds of the kernels apart


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Loading goes on: fraction 0..1 of the bytes read."""

    what: str
    fraction: float


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine can't start; reason is one line for the user."""

    reason: str


class Begun(msgspec.Struct, frozen=True, tag=True):
    """These leave the line and are run in the step that follows. Said before it, in case that step is the last."""

    request_ids: tuple[str, ...]


class Step(msgspec.Struct, frozen=True, tag=True):
    """What one step brought, to all requests it touched."""

    events: tuple[TokenEvent, ...]
    stats: StepStats
    picture: tuple[GroupPicture, ...] | None = None  # one per KV group, when somebody watches and it is time


class Pong(msgspec.Struct, frozen=True, tag=True):
    """Answers a Ping."""

    number: int


ToEngine = Start | Submit | Cancel | Watch | Ping
ToApi = Ready | Progress | Failed | Begun | Step | Pong

LENGTH = struct.Struct("<I")
MAX_MESSAGE_BYTES = 256 * 2**20  # far above the largest submit; more than that is a broken stream, not a message

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_to_api = msgspec.msgpack.Decoder(ToApi)


class WireError(Exception):
    """What came over the socket is no message: the stream can't be trusted any further."""


def frame(message: ToEngine | ToApi) -> bytes:
    """The bytes of one message on the socket: its length (4 bytes, little-endian), then msgpack."""
    body = _encoder.encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise WireError(f"a message of {len(body)} bytes; the limit is {MAX_MESSAGE_BYTES}")
    return LENGTH.pack(len(body)) + body


def body_length(header: bytes) -> int:
    """How many bytes of body follow this header of LENGTH.size bytes."""
    (length,) = LENGTH.unpack(header)
    if length > MAX_MESSAGE_BYTES:
        raise WireError(f"a message of {length} bytes announced; the limit is {MAX_MESSAGE_BYTES}")
    return int(length)


def to_engine(body: bytes | bytearray) -> ToEngine:
    """The message that the API process sent."""
    try:
        return _to_engine.decode(body)
    except msgspec.MsgspecError as error:
        raise WireError(str(error)) from error


def to_api(body: bytes | bytearray) -> ToApi:
    """The message that the engine process sent."""
    try:
        return _to_api.decode(body)
    except msgspec.MsgspecError as error:
        raise WireError(str(error)) from error


def receive_bytes(sock: socket.socket) -> bytearray | None:
    """The next message's body from a blocking socket; None at end of file, also within a message."""
    header = _receive_exactly(sock, LENGTH.size)
    return None if header is None else _receive_exactly(sock, body_length(bytes(header)))


def _receive_exactly(sock: socket.socket, count: int) -> bytearray | None:
    body = bytearray(count)
    view = memoryview(body)
    while view:
        received = sock.recv_into(view)
        if received == 0:
            return None
        view = view[received:]
    return body
