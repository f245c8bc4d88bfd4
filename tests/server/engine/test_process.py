"""One engine process from outside: talking to it, and its end in every way."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from server.config import EngineConfig
from server.engine.process import EngineGone, EngineProcess, launch
from server.engine.wire import Ping, Pong, Progress, Ready, Start, Step
from tests.helpers.waiting import eventually, is_running, open_files

CONFIG = EngineConfig(model_path="/models/fake")


def exists(pid: int) -> bool:
    """As a zombie, too."""
    return Path(f"/proc/{pid}").exists()


def script(text: str) -> list[str]:
    """A command that runs this Python; `sock` is its end."""
    head = "import os, socket, sys; sock = socket.socket(fileno=int(sys.argv[2]));"
    return [sys.executable, "-c", f"{head} {text}"]


@pytest.fixture
async def spawn() -> AsyncIterator[Callable[[list[str]], "asyncio.Future[EngineProcess]"]]:
    """Processes that are ended after the test."""
    processes: list[EngineProcess] = []

    async def start(command: list[str]) -> EngineProcess:
        processes.append(await EngineProcess.spawn(command))
        return processes[-1]

    yield start
    for process in processes:
        await process.end(grace_s=0)


async def test_messages_go_back_and_forth(spawn, fake_command) -> None:
    process = await spawn(fake_command("normal"))
    process.send(Start(CONFIG))
    kinds = [type(await process.receive()) for _ in range(3)]
    assert kinds == [Progress, Ready, Step]
    process.send(Ping(5))
    assert await process.receive() == Pong(5)


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("sys.exit(0)", "ended with status 0"),
        ("sys.exit(9)", "ended with status 9"),
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("os.kill(os.getpid(), 40)", "was killed by signal 40"),
    ],
)
async def test_the_end_of_its_socket_is_its_end_and_the_reason_is_told(spawn, text: str, how: str) -> None:
    process = await spawn(script(text))
    with pytest.raises(EngineGone, match="end of file"):
        await process.receive()
    assert await process.end(grace_s=30) == how


@pytest.mark.parametrize("nonsense", [r"b'\x03\0\0\0abc'", r"b'\xff\xff\xff\xff'"])
async def test_nonsense_is_no_message(spawn, nonsense: str) -> None:
    process = await spawn(script(f"sock.sendall({nonsense}); sock.recv(1)"))
    with pytest.raises(EngineGone, match="something else than a message"):
        await process.receive()


async def test_sending_to_a_dead_engine_does_nothing(spawn) -> None:
    process = await spawn(script("sys.exit()"))
    with pytest.raises(EngineGone):
        await process.receive()
    for number in range(20):
        process.send(Ping(number))
    await process.end(grace_s=30)
    process.send(Ping(21))
    assert not exists(process.pid)


async def test_sending_does_not_wait_for_a_reader(spawn) -> None:
    process = await spawn(script("import signal; signal.pause()"))
    for number in range(200_000):  # far more than a socket holds
        process.send(Ping(number))
    assert await process.end(grace_s=0) == "was killed by SIGKILL"


async def test_one_that_does_not_go_is_killed(spawn) -> None:
    process = await spawn(script("import time; print('up', flush=True); time.sleep(1000)"))
    assert await process.end(grace_s=0.05) == "was killed by SIGKILL"
    assert not exists(process.pid)
    assert await process.end(grace_s=0) == "was killed by SIGKILL"


async def test_a_stopped_one_is_killed(spawn, fake_command) -> None:
    process = await spawn(fake_command("normal"))
    os.kill(process.pid, signal.SIGSTOP)
    assert await process.end(grace_s=0.05) == "was killed by SIGKILL"


async def test_ending_that_is_cancelled_leaves_no_child_not_even_a_zombie(spawn) -> None:
    process = await spawn(script("import signal; signal.pause()"))
    ending = asyncio.create_task(process.end(grace_s=1000))
    await eventually(process._writer.is_closing)  # it has begun
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert not exists(process.pid)


async def test_the_child_gets_our_socket_and_no_other_file(spawn) -> None:
    with socket.socket() as other:
        os.set_inheritable(other.fileno(), True)
        process = await spawn(
            script("sock.sendall(bytes([1, 0, 0, 0, len(os.listdir('/proc/self/fd'))])); sock.recv(1)")
        )
        header_and_body = await process._reader.readexactly(5)
    assert header_and_body[4] == 5  # standard input, output and error, the socket, and the listing itself


async def test_the_child_sleeps_at_barriers_unless_the_user_says_otherwise(spawn, monkeypatch) -> None:
    tell = "sock.sendall(os.environ['OMP_WAIT_POLICY'].encode() + b';'); sock.recv(1)"
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert await (await spawn(script(tell)))._reader.readuntil(b";") == b"PASSIVE;"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert await (await spawn(script(tell)))._reader.readuntil(b";") == b"ACTIVE;"


async def test_a_launch_that_is_cancelled_leaves_nothing_behind(fake_command) -> None:
    files, others = open_files(), children()  # other tests' servers may be up
    heard: list[Progress] = []
    launching = asyncio.create_task(launch(fake_command("hang"), CONFIG, patience_s=1000, on_progress=heard.append))
    await eventually(lambda: heard)
    (pid,) = children() - others
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching
    assert not exists(pid)
    assert open_files() == files


def children() -> set[int]:
    """Processes that this one has started."""
    me = os.getpid()
    return {int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split() if is_running(int(pid))}
