"""The messages between the two processes survive the journey, and nothing else passes for one."""

import socket
import threading

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.sampling_params import SamplingParams
from server.config import EngineConfig
from server.engine import wire
from server.engine.request import GroupStats, Request, StepStats, TokenEvent, TokenLogprob
from server.engine.wire import (
    LENGTH,
    MAX_MESSAGE_BYTES,
    Begun,
    Cancel,
    Failed,
    Ping,
    Pong,
    Progress,
    Ready,
    Start,
    Step,
    Submit,
    Watch,
    WireError,
    body_length,
    frame,
    receive_bytes,
    to_api,
    to_engine,
)

STATS = StepStats(0.25, 7, 1, 3, running=2, waiting=4, preemptions=1, groups=(GroupStats(1, 2, 3, 4096),))
EVENT = TokenEvent(
    "r-1",
    tokens=(5, 0, 262_143),
    logprobs=(TokenLogprob(-0.1 - 0.2, (5, 6), (-0.30000000000000004, -1e-300)), TokenLogprob(0.0)),
    finish="stop",
    cached_tokens=16,
    preemptions=2,
    queue_seconds=0.125,
)
PARAMS = SamplingParams(
    temperature=0.7,
    top_k=40,
    top_p=0.95,
    min_p=0.05,
    repetition_penalty=1.1,
    presence_penalty=-2.0,
    frequency_penalty=2.0,
    logit_bias={0: -100.0, 262_143: 100.0},
    seed=2**63 - 1,
    choice=7,
    num_logprobs=20,
    min_tokens=3,
    stop_token_ids=(1, 2, 106),
)

TO_ENGINE = [
    Start(EngineConfig("/models/a b.gguf", kv_cache_bytes=2**40, max_model_len=None, prefix_cache=False, threads=3)),
    Submit((Request("r-1", (1, 2, 3), 16, PARAMS, namespace="n", cache_salt="ß\n☃"), Request("r-2", (), 1, PARAMS))),
    Submit(()),
    Cancel(("r-1", "r-2")),
    Watch(500),
    Ping(2**40),
]
TO_API = [
    Ready(10**6, 2**33, 8192, "cuda:0", "torch", "float32", "bfloat16", 64, True, 3.5),
    Progress("weights", 0.375),
    Failed("it's not there: ☃"),
    Begun(("r-1", "r-2")),
    Step((EVENT, TokenEvent("r-2")), STATS),
    Step((), STATS),
    Pong(2**40),
]


def body(data: bytes) -> bytes:
    assert body_length(data[: LENGTH.size]) == len(data) - LENGTH.size
    return data[LENGTH.size :]


@pytest.mark.parametrize("message", TO_ENGINE, ids=lambda message: type(message).__name__)
def test_what_the_api_sends_arrives_as_it_was(message: wire.ToEngine) -> None:
    assert to_engine(body(frame(message))) == message


@pytest.mark.parametrize("message", TO_API, ids=lambda message: type(message).__name__)
def test_what_the_engine_sends_arrives_as_it_was(message: wire.ToApi) -> None:
    assert to_api(body(frame(message))) == message


def test_every_message_type_is_tried_here() -> None:
    assert {type(message) for message in TO_ENGINE} == set(wire.ToEngine.__args__)
    assert {type(message) for message in TO_API} == set(wire.ToApi.__args__)


def test_types_that_python_tells_apart_arrive_as_themselves() -> None:
    (request,) = to_engine(body(frame(Submit((Request("r", (1,), 1, PARAMS),))))).requests
    assert isinstance(request.prompt, tuple)
    assert isinstance(request.params, SamplingParams)
    assert [type(key) for key in request.params.logit_bias] == [int, int]
    assert isinstance(request.params.stop_token_ids, tuple)


@given(st.floats(allow_nan=False), st.lists(st.floats(allow_nan=False), max_size=20))
def test_logprobs_arrive_bit_for_bit(logprob: float, others: list[float]) -> None:
    sent = TokenLogprob(logprob, tuple(range(len(others))), tuple(others))
    step = to_api(body(frame(Step((TokenEvent("r", (1,), (sent,)),), STATS))))
    (received,) = step.events[0].logprobs
    assert [x.hex() for x in (received.logprob, *received.top_logprobs)] == [x.hex() for x in (logprob, *others)]


@given(st.text(), st.lists(st.integers(0, 2**32 - 1), max_size=50), st.text())
def test_any_request_arrives(name: str, prompt: list[int], salt: str) -> None:
    message = Submit((Request(name, tuple(prompt), 1, PARAMS, cache_salt=salt),))
    assert to_engine(body(frame(message))) == message


# what is no message


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_nonsense_is_refused_not_raised_as_something_else(data: bytes) -> None:
    for decode in (to_engine, to_api):
        try:
            decode(data)
        except WireError:
            continue
        assert msgspec.msgpack.decode(data)["type"]  # so it was a message after all


@pytest.mark.parametrize("message", TO_API, ids=lambda message: type(message).__name__)
def test_a_message_in_the_wrong_direction_is_refused(message: wire.ToApi) -> None:
    with pytest.raises(WireError):
        to_engine(body(frame(message)))


@pytest.mark.parametrize("message", [*TO_ENGINE, *TO_API], ids=lambda message: type(message).__name__)
def test_a_cut_message_is_refused(message: wire.ToEngine | wire.ToApi) -> None:
    whole = body(frame(message))
    decode = to_engine if isinstance(message, wire.ToEngine) else to_api
    for length in range(len(whole)):
        with pytest.raises(WireError):
            decode(whole[:length])


def test_a_length_beyond_reason_is_refused_before_memory_is_taken() -> None:
    assert body_length(LENGTH.pack(MAX_MESSAGE_BYTES)) == MAX_MESSAGE_BYTES
    with pytest.raises(WireError, match=str(MAX_MESSAGE_BYTES + 1)):
        body_length(LENGTH.pack(MAX_MESSAGE_BYTES + 1))


def test_a_message_beyond_reason_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", 1000)
    with pytest.raises(WireError, match="the limit is 1000"):
        frame(Cancel(("x" * 1000,)))


# over a socket


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_messages_come_apart_again_however_the_bytes_arrive(pair) -> None:
    ours, theirs = pair
    data = b"".join(map(frame, TO_ENGINE))
    sender = threading.Thread(target=lambda: [ours.sendall(data[i : i + 1]) for i in range(len(data))])
    sender.start()
    received = [to_engine(receive_bytes(theirs)) for _ in TO_ENGINE]
    sender.join()
    assert received == TO_ENGINE


def test_a_message_larger_than_the_sockets_buffer_arrives(pair) -> None:
    ours, theirs = pair
    message = Submit((Request("r", tuple(range(10**6)), 1, PARAMS),))
    sender = threading.Thread(target=ours.sendall, args=(frame(message),))
    sender.start()
    assert to_engine(receive_bytes(theirs)) == message
    sender.join()


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 10])
def test_the_end_of_file_is_the_end_wherever_it_comes(pair, length: int) -> None:
    ours, theirs = pair
    ours.sendall(frame(Cancel(("a request",)))[:length])
    ours.close()
    assert receive_bytes(theirs) is None
