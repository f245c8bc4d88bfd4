"""A whole server in its own processes, started as a user starts it, and a plain HTTP client for it."""

import contextlib
import http.client
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 120.0  # seconds; for a machine that is busy with other things
# tests of big clients run in an environment of their own, and the server in another
PYTHON = os.environ.get("KVELL_TEST_PYTHON", sys.executable)
READY = '"kvell is ready"'  # with --log-format json
COMMAND = [PYTHON, "-c", "from server.cli import main; main()"]


def environment(**extra: str) -> dict[str, str]:
    """The test's own, without settings that would reach the server.

    A machine that is busy with tests is no overload: a line may stand, unless a test says otherwise.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KVELL_")}
    cache = {name: os.environ[name] for name in ("KVELL_CACHE_DIR",) if name in os.environ}
    ours = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "80", "KVELL_MAX_QUEUE_SECONDS": "off"}
    return kept | cache | ours | extra


def run_command(
    *arguments: str, env: Mapping[str, str] | None = None, **given: Any
) -> subprocess.CompletedProcess[str]:
    """`kvell ARGUMENTS`, to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(**(env or {})),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        **given,
    )


class LiveServer:
    """`kvell serve ARGUMENTS`, on a free port unless a port is given. Use as a context manager."""

    def __init__(
        self,
        *arguments: str,
        port: int = 0,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = COMMAND,
        stderr: Any = subprocess.PIPE,
    ) -> None:
        self._given_port = port
        self.process = subprocess.Popen(
            [*command, "serve", *arguments, "--port", str(port)],
            env=environment(**(env or {})),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        self.headers: dict[str, str] = {}  # for the requests that `figure` makes
        self.output: list[str] = []
        self.errors: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        pipes = ((self.process.stdout, self.output), (self.process.stderr, self.errors))
        self._threads = [threading.Thread(target=self._read, args=each, daemon=True) for each in pipes if each[0]]
        for thread in self._threads:
            thread.start()

    def _read(self, pipe: Any, into: list[str]) -> None:
        for line in pipe:
            into.append(line.rstrip("\n"))
            self._lines.put(line)
        self._lines.put(None)

    def wait_ready(self) -> "LiveServer":
        """Until it has announced itself."""
        deadline = time.monotonic() + PATIENCE
        while not any("  try  " in line for line in self.output) and not any(READY in line for line in self.errors):
            assert self.process.poll() is None, "\n".join(self.errors)
            with contextlib.suppress(queue.Empty):
                self._lines.get(timeout=1)
            assert time.monotonic() < deadline, "not ready: " + "\n".join(self.output + self.errors)
        return self

    def __enter__(self) -> "LiveServer":
        return self

    def __exit__(self, *how: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join(10)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    @property
    def url(self) -> str:
        said = "\n".join(self.output + [line for line in self.errors if READY in line])
        found = re.search(r'address"?:? +"?(https?://[^\s"]+)', said)
        assert found, self.output
        return found[1]

    @property
    def port(self) -> int:
        return self._given_port or int(self.url.rpartition(":")[2])

    @property
    def engine_pid(self) -> int:
        """The one child of the API process."""
        (child,) = children(self.process.pid)
        return child

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(PATIENCE)

    def request(
        self, method: str, path: str, body: object = None, *, raw: bytes | None = None, **headers: str
    ) -> "Got":
        """One request and its whole answer."""
        with self.stream(method, path, body, raw=raw, **headers) as opened:
            return opened.rest()

    @contextlib.contextmanager
    def stream(
        self, method: str, path: str, body: object = None, *, raw: bytes | None = None, **headers: str
    ) -> Iterator["Opened"]:
        """One request, its answer to be read bit by bit. Leaving hangs up."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            content = raw if raw is not None else None if body is None else json.dumps(body).encode()
            named = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
            connection.request(method, path, content, named)
            yield Opened(connection.getresponse())
        finally:
            connection.close()

    def figure(self, name: str) -> float:
        """A sample of /metrics; several with different labels are added up."""
        text = self.request("GET", "/metrics", **self.headers).body.decode()
        labels = "" if name.endswith("}") else r"(?:\{[^}]*\})?"
        values = re.findall(rf"^{re.escape(name)}{labels} (\S+)$", text, re.MULTILINE)
        return sum(map(float, values))

    def until(self, holds: Any, what: str) -> None:
        """Ask again and again until it holds."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, what
            time.sleep(0.02)

    def until_idle(self) -> None:
        self.until(
            lambda: self.figure("kvell_requests_running") + self.figure("kvell_requests_waiting") == 0,
            "requests are still running",
        )


@dataclass
class Got:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """Of a stream: JSON decoded, "[DONE]" as it is, pings left out."""
        found = []
        for block in self.body.decode().split("\n\n"):
            if block and not block.startswith(":"):
                assert block.startswith("data: "), block
                data = block.removeprefix("data: ")
                found.append(data if data == "[DONE]" else json.loads(data))
        return found

    def text(self, index: int = 0) -> str:
        """The text of a choice, whole or streamed, chat or completions."""
        bodies = self.events() if self.headers["content-type"].startswith("text/event-stream") else [self.json()]
        said = ""
        for body in bodies:
            for choice in body["choices"] if body != "[DONE]" else ():
                if choice["index"] == index:
                    said += choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get(
                        "content", ""
                    )
        return said


@dataclass
class Opened:
    """An answer whose headers are there."""

    response: http.client.HTTPResponse
    so_far: bytes = field(default=b"")

    @property
    def status(self) -> int:
        return self.response.status

    def read_events(self, count: int) -> None:
        """Until so many events have come."""
        while self.so_far.count(b"\n\n") < count:
            part = self.response.read1(65536)
            assert part, f"the stream ended: {self.so_far[-200:]!r}"
            self.so_far += part

    def rest(self) -> Got:
        """Everything, to the end."""
        while part := self.response.read1(65536):
            self.so_far += part
        headers = {name.lower(): value for name, value in self.response.getheaders()}
        return Got(self.status, headers, self.so_far)


def open_pidfd(pid: int) -> int:
    """A handle on this very process: a number alone may be another's by the time it is used."""
    return os.pidfd_open(pid)


def is_over(pidfd: int) -> bool:
    """Whether that process is gone."""
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return True
    return False


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                if int(stat.rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def at_once(*jobs: Any) -> list[Any]:
    """Run all at the same time; results or exceptions in order."""
    results: list[Any] = [None] * len(jobs)

    def run(index: int) -> None:
        try:
            results[index] = jobs[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return results
