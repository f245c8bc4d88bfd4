"""Servers under test on this machine: start, wait, ask, stop; and how long from start to the first streamed token.

Every server speaks OpenAI's completions, so all are asked alike. Knows commands and paths to ask; knows no peer.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

import httpx

from benchmarks.peer.contests import MeasureFailed
from benchmarks.peer.processes import environment, json_of

POLL_SECONDS = 0.01
STOP_SECONDS = 30.0
MODEL_NAME = "bench"  # servers that care are started with this name
BENCH = (sys.executable, "-c", "from server.cli import main; main()", "bench", "serve")
PROMPT = "The most important thing about the sea is that"


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a server at a port, and which of its paths answers 200 once it is ready."""

    arguments: Callable[[int], list[str]]
    ready_path: str
    env: Mapping[str, str] = field(default_factory=dict)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Server:
    """One running server; a context manager that ends it, and whatever it started."""

    def __init__(self, command: Command) -> None:
        """Raises MeasureFailed where the program can't be started."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._ready_url = self.url + command.ready_path
        self.started = time.perf_counter()
        try:
            self._process = subprocess.Popen(
                command.arguments(port),
                env=environment(command.env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise MeasureFailed(f"could not be started: {error}") from error

    @property
    def pid(self) -> int:
        """Of the program that was started."""
        return self._process.pid

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def wait_ready(self, timeout_s: float) -> "Server":
        """Until the ready path answers 200. Raises MeasureFailed."""
        self._retry(lambda left: httpx.get(self._ready_url, timeout=left).status_code == 200, timeout_s)
        return self

    def first_token_seconds(self, timeout_s: float) -> float:
        """From the start of the process to the first streamed text of an answer. Raises MeasureFailed."""
        self._retry(lambda left: _streams_text(self.url, left), timeout_s)
        return time.perf_counter() - self.started

    def _retry(self, attempt: Callable[[float], bool], timeout_s: float) -> None:
        while True:
            left = self.started + timeout_s - time.perf_counter()
            if self._process.poll() is not None:
                raise MeasureFailed(f"the server ended with code {self._process.returncode}")
            if left <= 0:
                raise MeasureFailed(f"no answer within {timeout_s:g} s of the start")
            try:
                if attempt(left):
                    return
            except httpx.HTTPError:
                pass  # not listening yet, or still loading
            time.sleep(POLL_SECONDS)


def _streams_text(url: str, timeout_s: float) -> bool:
    """Whether a completion is streamed now; returns at its first piece of text."""
    body = {"model": MODEL_NAME, "prompt": PROMPT, "max_tokens": 4, "temperature": 0, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=timeout_s) as response:
        if response.status_code != 200:
            return False
        for line in response.iter_lines():
            if line.startswith("data: {") and any(each.get("text") for each in json.loads(line[6:])["choices"]):
                return True
    return False


class Fleet:
    """Servers that several contests share: each is started when it is first asked for, and all are ended together."""

    def __init__(self, timeout_s: float = 300.0) -> None:
        self._running: dict[str, Server] = {}
        self._timeout_s = timeout_s

    def url(self, name: str, command: Command) -> str:
        """Where the server of this name listens, ready. Raises MeasureFailed."""
        if name not in self._running:
            server = Server(command)
            self._running[name] = server
            server.wait_ready(self._timeout_s)
            burst(server.url, clients=4, words=16, new=8, seed=-1)  # what is set up at first use is set up now
        return self._running[name].url

    def close(self) -> None:
        """End them all."""
        while self._running:
            self._running.popitem()[1].__exit__(None, None, None)


def burst(url: str, *, clients: int, words: int, new: int, shared: int = 0, seed: int = 0) -> dict[str, float]:
    """One request per client, all at once, by `kvell bench serve` in a process of its own. Raises MeasureFailed."""
    sizes = ["--prompt-tokens", str(words), "--output-tokens", str(new), "--shared-prefix", str(shared)]
    many = ["--rate", "inf", "--num-requests", str(clients), "--seed", str(seed), "--warmup", "0", "--ignore-eos"]
    found = json_of([*BENCH, "--url", url, *many, *sizes])
    if found["output_tokens"] != clients * new:
        raise MeasureFailed(f"{found['output_tokens']} tokens came, not {clients} times {new}")
    return {
        "tok_s": found["output_tokens_per_second"],
        "first_token_s": found["time_to_first_token_ms"]["p50"] / 1000,
        "inter_token_ms": found["inter_token_ms"]["p50"],
        "input_tokens": found["input_tokens"],
        "cached_tokens": found["cached_tokens"],
    }
