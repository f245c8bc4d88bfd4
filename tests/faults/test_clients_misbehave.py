"""Clients that read slowly, hang up in the middle, or come in crowds: the others are answered, nothing leaks."""

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import REPEATS, SEED, Report
from tests.helpers.arena import FAULTY, LENGTH, SMALL, Arena, Heard, prompt_of
from tests.helpers.live_server import LiveServer, is_over

pytestmark = pytest.mark.e2e

LINGER = struct.pack("ii", 1, 0)  # close() sends a reset


@contextlib.contextmanager
def raw_stream(arena: Arena, number: int, *, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """A streaming request on a socket of its own, its head and body sent."""
    with socket.socket() as client:
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.connect(("127.0.0.1", arena.server.port))
        client.settimeout(60)
        body = {"prompt": prompt_of(number), "max_tokens": LENGTH, "temperature": 0, "ignore_eos": True, "stream": True}
        content = json.dumps(body | {"return_token_ids": True}).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        yield client


def tokens_in(answer: bytes) -> tuple[int, ...]:
    """Of a whole chunked stream."""
    tokens: list[int] = []
    for line in answer.split(b"\n"):
        if line.startswith(b"data: {"):
            tokens += json.loads(line[6:])["choices"][0].get("token_ids") or ()
    return tuple(tokens)


def test_a_slow_reader_gets_everything_and_holds_nobody_up(arena: Arena, report: Report) -> None:
    for _ in range(REPEATS):
        number = arena.rng.randrange(len(arena.solo))
        with arena.watched() as watch, raw_stream(arena, number, receive_buffer=2048) as slow:
            answer = slow.recv(arena.rng.randrange(1, 2048))
            heard = arena.crowd().join()
            assert {each.outcome for each in heard} == {"ok"}
            while part := slow.recv(arena.rng.randrange(1, 4096)):
                answer += part
        assert tokens_in(answer) == arena.solo[number]
        arena.note(Heard("ok", 200))
        assert watch.states == ["ready"]
        report.hear(*heard)
    arena.settle()


def test_clients_reset_their_connections(arena: Arena, report: Report) -> None:
    for _ in range(REPEATS):
        with arena.watched() as watch:
            crowd = arena.crowd()
            for number in range(20):
                with raw_stream(arena, number % len(arena.solo)) as client:
                    wanted = arena.rng.choice([0, 1, 300, 3000])
                    if wanted:
                        client.recv(wanted)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
                arena.note(Heard("left", None))
            heard = crowd.join()
        assert {each.outcome for each in heard} == {"ok"}
        assert watch.states == ["ready"]
        report.hear(*heard, *[Heard("left", None)] * 20)
        arena.settle()


def test_a_thousand_idle_connections(arena: Arena, report: Report) -> None:
    """They take nobody's place, and their files are back when they are gone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        for _ in range(REPEATS):
            with contextlib.ExitStack() as stack:
                for _ in range(1000):
                    stack.enter_context(socket.create_connection(("127.0.0.1", arena.server.port)))
                with arena.watched() as watch:
                    heard = arena.crowd().join()
                assert {each.outcome for each in heard} == {"ok"}
                assert watch.states == ["ready"]
                assert open_files(arena) > 1000
                report.hear(*heard)
            arena.server.until(lambda: open_files(arena) < 100, "connections are left")
        arena.settle()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files(arena: Arena) -> int:
    return len(os.listdir(f"/proc/{arena.server.process.pid}/fd"))


def test_sigterm_twice(arena: Arena, model: Path, report: Report) -> None:
    """The last test of this server: it ends at once, and every client hears an error or the end of its connection."""
    end_twice(arena, report)
    for round_id in range(1, REPEATS):
        with LiveServer(str(model), *SMALL, command=FAULTY) as live:
            end_twice(Arena(live.wait_ready(), seed=SEED + round_id), report)


def end_twice(arena: Arena, report: Report) -> None:
    engine = os.pidfd_open(arena.server.engine_pid)
    crowd = arena.crowd()
    arena.some_moment(crowd)
    arena.server.process.terminate()
    with contextlib.suppress(OSError, http.client.HTTPException):
        arena.server.until(lambda: arena.server.request("GET", "/ready").status == 503, "/ready stayed 200")
        late = arena.ask(prompt_of(0), note=False)
        assert (late.outcome, late.code) in {("unavailable", "shutting_down"), ("nothing", None)}
    with report.recovering():
        arena.server.process.terminate()
        assert arena.server.wait() in (0, 128 + signal.SIGTERM)  # 0: all had ended before the second
        report.hear(*crowd.join())
        arena.server.until(lambda: is_over(engine), "the engine outlived its server")
    os.close(engine)
