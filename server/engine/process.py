"""One engine process as the API process sees it: launch it, talk to it, end it. Knows nothing of requests.

The socket pair is the only tie. Our end closes it: that is the order to exit. Their end closes it: they are dead.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Self

from server.config import EngineConfig
from server.engine.errors import StartupFailed
from server.engine.wire import (
    LENGTH,
    Failed,
    Progress,
    Ready,
    Start,
    ToApi,
    ToEngine,
    WireError,
    body_length,
    frame,
    to_api,
)

# -P: a folder called server/ in the working directory must not be taken for ours
ENGINE_COMMAND = (sys.executable, "-P", "-m", "server.engine.main")
# torch's OpenMP threads spin at barriers by default: beside one other busy process that costs a factor of ten
# (docs/lab-notes.md). A setting of the user's own goes first.
SLEEP_AT_BARRIERS = {"OMP_WAIT_POLICY": "PASSIVE"}
POLL_SECONDS = 0.01
KILL_SECONDS = 5.0


class EngineGone(Exception):
    """The socket is at its end, or what came is no message."""


class EngineProcess:
    """A child process and the socket to it. Owned by whoever spawned it, who must call `end` once."""

    def __init__(
        self, child: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._child = child
        self._reader = reader
        self._writer = writer

    @classmethod
    async def spawn(cls, command: Sequence[str] = ENGINE_COMMAND) -> Self:
        """Start `command --fd N`. Call from the main thread: on Linux the engine dies with the thread that started it.

        The child keeps our standard output and error. Raises OSError when it can't be started.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                child = subprocess.Popen(
                    [*command, "--fd", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env=SLEEP_AT_BARRIERS | os.environ,
                )
        except BaseException:
            ours.close()
            raise
        try:
            return cls(child, *await asyncio.open_unix_connection(sock=ours))
        except BaseException:
            ours.close()
            child.kill()
            child.wait()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, message: ToEngine) -> None:
        """Queue a message. Never blocks: what the engine has not read yet waits in memory. To a dead engine: no-op."""
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    async def receive(self) -> ToApi:
        """The next message. Raises EngineGone."""
        try:
            header = await self._reader.readexactly(LENGTH.size)
            return to_api(await self._reader.readexactly(body_length(header)))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise EngineGone("end of file") from error
        except WireError as error:
            raise EngineGone(f"sent something else than a message: {error}") from error

    async def end(self, *, grace_s: float) -> str:
        """Close the socket, kill the child if it is still there after grace_s, reap it; how it ended, for people.

        May be called again. Cancelling it kills the child at once.
        """
        self._writer.transport.abort()
        try:
            await self._exited(grace_s)
            self._child.kill()  # does nothing where it has exited
            # even SIGKILL has to wait for a process that hangs in the kernel; then there's nothing to be done about it
            await self._exited(KILL_SECONDS)
        except asyncio.CancelledError:
            self._child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout=1)
            raise
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        return _how_it_ended(self._child.returncode)

    async def _exited(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self._child.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)


async def launch(
    command: Sequence[str], config: EngineConfig, *, patience_s: float, on_progress: Callable[[Progress], None]
) -> tuple[EngineProcess, Ready]:
    """Start an engine and wait until it has loaded; patience_s is how long it may be silent meanwhile.

    Raises StartupFailed. However this ends otherwise, cancelling included, no process is left behind.
    """
    try:
        process = await EngineProcess.spawn(command)
    except OSError as error:
        raise StartupFailed(f"the engine process can't be started: {error}") from error
    try:
        process.send(Start(config))
        return process, await _until_ready(process, patience_s, on_progress)
    except EngineGone:
        how = await process.end(grace_s=KILL_SECONDS)
        raise StartupFailed(f"the engine process {how} while loading") from None
    except BaseException:
        await process.end(grace_s=0)
        raise


async def _until_ready(process: EngineProcess, patience_s: float, on_progress: Callable[[Progress], None]) -> Ready:
    while True:
        try:
            async with asyncio.timeout(patience_s):
                message = await process.receive()
        except TimeoutError:
            raise StartupFailed(f"the engine made no progress for {patience_s:.0f} s while loading") from None
        if isinstance(message, Ready):
            return message
        if isinstance(message, Failed):
            raise StartupFailed(message.reason)
        if isinstance(message, Progress):
            on_progress(message)


def _how_it_ended(returncode: int | None) -> str:
    if returncode is None:
        return "does not die"
    if returncode >= 0:
        return f"ended with status {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
