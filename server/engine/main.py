"""The engine's process: hosts the synchronous engine behind a socket. `server.engine.process` starts it.

    python -P -m server.engine.main --fd N

N is an inherited end of a socket pair. A thread reads it, so that its end of file is seen at any moment, also within a
long step: the API process is gone then and so is this one, at once. The API process always reads, so writing may block
for a moment, never for good. A bug that `Engine.step` lets through ends the process with a traceback; the API sees
the end of file and starts another.
"""

import argparse
import ctypes
import importlib
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from model.errors import CheckpointError
from server.config import EngineConfig
from server.engine.errors import StartupFailed
from server.engine.request import GroupPicture, Request, StepStats, TokenEvent
from server.engine.wire import (
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
    ToApi,
    ToEngine,
    Watch,
    frame,
    receive_bytes,
    to_engine,
)


class Outcome(Protocol):
    """What a step brought."""

    @property
    def events(self) -> Sequence[TokenEvent]: ...

    @property
    def stats(self) -> StepStats: ...


class Core(Protocol):
    """The synchronous engine; `server.engine.engine.Engine`."""

    @property
    def has_work(self) -> bool: ...

    @property
    def next_deadline(self) -> float | None: ...

    def submit(self, requests: Sequence[Request]) -> None: ...

    def cancel(self, request_ids: Sequence[str]) -> None: ...

    def step(self) -> Outcome: ...

    def stats(self) -> StepStats: ...

    def picture(self) -> tuple[GroupPicture, ...]: ...

    def on_ready(self, wake: Callable[[], None]) -> None: ...

    def on_begin(self, tell: Callable[[Sequence[str]], None]) -> None: ...


Report = Callable[[str, float], None]  # what is being loaded, fraction done
Composer = Callable[[EngineConfig, Report], tuple[Core, Ready]]


class Channel:
    """The socket to the API process: messages in through a thread, messages out directly.

    on_end is called, from either thread, when there's nobody to work for any more; with the status to exit with.
    """

    def __init__(self, sock: socket.socket, *, on_end: Callable[[int], None]) -> None:
        self._sock = sock
        self._inbox: queue.SimpleQueue[ToEngine | None] = queue.SimpleQueue()
        self._on_end = on_end
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    def _read(self) -> None:
        try:
            while (body := receive_bytes(self._sock)) is not None:
                self._inbox.put(to_engine(body))
        except ConnectionError:  # the other way in which the end of a socket shows
            self._on_end(0)
        except Exception:
            traceback.print_exc()  # a broken stream: nothing that follows can be trusted
            self._on_end(1)
        else:
            self._on_end(0)

    def receive(self, *, until: float | None = None) -> ToEngine | None:
        """The next message; sleeps until there is one, or None because someone called wake or it is `until`.

        until: on time.monotonic's clock; None: as long as it takes.
        """
        try:
            return self._inbox.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None

    def wake(self) -> None:
        """Let receive return, or the next call of it. From any thread."""
        self._inbox.put(None)

    def waiting(self) -> bool:
        """Whether receive would return at once."""
        return not self._inbox.empty()

    def send(self, message: ToApi) -> None:
        """Returns once the message is in the socket's buffer."""
        try:
            self._sock.sendall(frame(message))
        except ConnectionError:
            self._on_end(0)


class Watcher:
    """Whether anybody looks at the blocks, and when they are to be shown again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._interval_s = 0.0
        self._due = 0.0

    def set(self, message: Watch) -> None:
        """Show them at once, and from now on every so often."""
        self._interval_s = message.interval_ms / 1000
        self._due = self._clock()

    def picture(self, core: Core, *, last: bool) -> tuple[GroupPicture, ...] | None:
        """None when nobody looks or it is not yet time. last: nothing will change for a while, so show how it ended."""
        now = self._clock()
        if not self._interval_s or not (last or now >= self._due):
            return None
        self._due = now + self._interval_s
        return core.picture()


def serve(channel: Channel, core: Core) -> None:
    """Obey messages and make steps, for ever. Sleeps while there's nothing to do.

    All messages that are there are obeyed before each step, so that a cancel takes effect with the next one.
    """
    watcher = Watcher()
    core.on_ready(channel.wake)
    core.on_begin(lambda request_ids: channel.send(Begun(tuple(request_ids))))
    channel.send(Step((), core.stats()))
    while True:
        while channel.waiting() or not core.has_work:
            _obey(channel.receive(until=core.next_deadline), channel, core, watcher)
        outcome = core.step()
        channel.send(Step(tuple(outcome.events), outcome.stats, watcher.picture(core, last=not core.has_work)))


def _obey(message: ToEngine | None, channel: Channel, core: Core, watcher: Watcher) -> None:
    if isinstance(message, Submit):
        core.submit(message.requests)
    elif isinstance(message, Cancel):
        core.cancel(message.request_ids)
        if not core.has_work:
            channel.send(Step((), core.stats(), watcher.picture(core, last=True)))
    elif isinstance(message, Watch):
        watcher.set(message)
        channel.send(Step((), core.stats(), watcher.picture(core, last=False)))
    elif isinstance(message, Ping):
        channel.send(Pong(message.number))
    elif message is not None:
        raise AssertionError(f"{type(message).__name__} came a second time")


def load(channel: Channel, find_composer: Callable[[], Composer], *, began: float) -> Core | None:
    """Do what Start says and report how it went; None where it failed. A failure that is our bug leaves a traceback.

    began is when the process began, on the monotonic clock: what Ready says about loading includes importing torch.
    """
    start = channel.receive()
    assert isinstance(start, Start), f"the first message was {type(start).__name__}"
    try:
        compose = find_composer()
        core, ready = compose(start.config, lambda what, fraction: channel.send(Progress(what, fraction)))
    except (CheckpointError, StartupFailed) as error:
        channel.send(Failed(_one_line(str(error))))
        return None
    except Exception as error:
        traceback.print_exc()
        channel.send(Failed(_one_line(f"{type(error).__name__}: {error}")))
        return None
    channel.send(msgspec.structs.replace(ready, load_seconds=time.monotonic() - began))
    return core


def _one_line(text: str) -> str:
    return " ".join(text.split())


def die_with_parent() -> None:
    """Ask Linux for a SIGKILL when the parent dies, for the moments when no thread of ours gets to run.

    A parent that is gone already is no case of its own: the socket is at its end then.
    """
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG in <linux/prctl.h>
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)


def _import_composer() -> Composer:
    """Not at the top of the file: torch takes seconds, and by now the process dies with its parent."""
    composer: Composer = importlib.import_module("server.engine.compose").compose
    return composer


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's life; returns its exit status."""
    began = time.monotonic()
    # Ctrl-C and a stop of the whole group reach this process too, but only the API process decides when it ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    sock = socket.socket(fileno=parser.parse_args(arguments).fd)
    die_with_parent()
    channel = Channel(sock, on_end=os._exit)
    core = load(channel, _import_composer, began=began)
    if core is None:
        return 1
    serve(channel, core)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
