"""An engine process without a model: the real channel and loop around a core that does what prompts tell it.

    python fake_engine.py --script normal,die --starts FILE --fd N

The nth start plays the nth word of the script (the last one for ever); FILE counts the starts, one byte each.
What a request does is its prompt's first token, see the constants.
"""

import argparse
import hashlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from server.config import EngineConfig
from server.engine.errors import StartupFailed
from server.engine.main import Channel, load, serve
from server.engine.request import DiskStats, FinishReason, GroupPicture, GroupStats, Request, StepStats, TokenEvent
from server.engine.wire import Ready

COUNT = 1  # writes 100, 101, 102 ... one a step, max_tokens of them
HOLD = 2  # is admitted and then makes no progress
CRASH = 3  # takes the process down
FAULT = 4  # ends with an error of its own
BUSY = 5  # a step that takes minutes without the interpreter lock, as a matrix product would
WARN = 7  # its step, and all that follow, say that something is wrong with the disk
SPIN = 6  # a step that takes minutes holding the interpreter lock


@dataclass
class Outcome:
    events: list[TokenEvent]
    stats: StepStats


@dataclass
class FakeCore:
    """Satisfies `server.engine.main.Core`."""

    live: dict[str, Request] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    events: list[TokenEvent] = field(default_factory=list)
    disk: DiskStats | None = None
    tell_begun: Callable[[Sequence[str]], None] = lambda request_ids: None

    @property
    def has_work(self) -> bool:
        return bool(self.events) or any(request.prompt[0] != HOLD for request in self.live.values())

    @property
    def next_deadline(self) -> float | None:
        return None

    def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self.live[request.id] = request
            self.written[request.id] = 0
            self.events.append(TokenEvent(request.id))
        self.tell_begun([request.id for request in requests])

    def cancel(self, request_ids: Sequence[str]) -> None:
        for each in request_ids:
            if each in self.live:
                self._end(each, "cancelled")

    def step(self) -> Outcome:
        tokens = 0
        for request in list(self.live.values()):
            tokens += self._advance(request)
        events, self.events = self.events, []
        return Outcome(events, self._stats(tokens))

    def stats(self) -> StepStats:
        return self._stats(0)

    def on_begin(self, tell: Callable[[Sequence[str]], None]) -> None:
        self.tell_begun = tell

    def on_ready(self, wake: Callable[[], None]) -> None:
        """It never gets anything to do by itself."""

    def picture(self) -> tuple[GroupPicture, ...]:
        return (GroupPicture(1, (3, len(self.live), 0, 100 - len(self.live))),)

    def _advance(self, request: Request) -> int:
        match request.prompt[0]:
            case 1:  # the numbers are those of the constants above
                self.written[request.id] += 1
                number = self.written[request.id]
                self.events.append(TokenEvent(request.id, tokens=(99 + number,)))
                if number == request.max_tokens:
                    self._end(request.id, "length")
                return 1
            case 3:
                raise RuntimeError("this request is too much for me")
            case 4:
                self._end(request.id, "error")
            case 5:
                hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
            case 6:
                while True:
                    pass
            case 7:
                self.disk = DiskStats(4096, blocks_written=1, warning="the disk is full")
                self._end(request.id, "length")
        return 0

    def _end(self, request_id: str, finish: FinishReason) -> None:
        del self.live[request_id]
        self.events.append(
            TokenEvent(request_id, finish=finish, error="it was asked to" if finish == "error" else None)
        )

    def _stats(self, tokens: int) -> StepStats:
        return StepStats(
            seconds=0.001 * tokens,
            prompt_tokens=0,
            recomputed_tokens=0,
            decode_tokens=tokens,
            running=len(self.live),
            waiting=0,
            preemptions=0,
            groups=(GroupStats(used=len(self.live), cached=0, free=10 - len(self.live), block_bytes=100),),
            disk=self.disk,
        )


def ready(config: EngineConfig) -> Ready:
    return Ready(
        cache_tokens=160,
        cache_bytes=1000,
        max_model_len=config.max_model_len or 128,
        device="cpu",
        backend="fake",
        dtype="float32",
        kv_cache_dtype="float32",
        threads=1,
        bit_exact=True,
        load_seconds=0.0,
    )


def play(word: str) -> Callable[[EngineConfig, Callable[[str, float], None]], tuple[FakeCore, Ready]]:
    """How a start with this word of the script goes."""

    def compose(config: EngineConfig, report: Callable[[str, float], None]) -> tuple[FakeCore, Ready]:
        report("weights", 0.5)
        if word == "fail":
            raise StartupFailed(f"no such model:\n{config.model_path}")
        if word == "bug":
            raise KeyError("a bug of ours")
        if word == "die":
            os._exit(3)
        if word == "hang":
            while True:
                signal.pause()
        return FakeCore(), ready(config)

    return compose


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--script", default="normal")
    parser.add_argument("--starts", type=Path)
    arguments = parser.parse_args()
    words = arguments.script.split(",")
    number = 0
    if arguments.starts:
        with arguments.starts.open("a") as starts:
            number = starts.tell()
            starts.write(".")
    channel = Channel(socket.socket(fileno=arguments.fd), on_end=os._exit)
    core = load(channel, lambda: play(words[min(number, len(words) - 1)]), began=time.monotonic())
    if core is None:
        return 1
    serve(channel, core)
    return 0


if __name__ == "__main__":
    sys.exit(main())
