"""A server among its clients, for faults: what everybody heard, whether /ready told the truth, and what is left.

One round: a crowd asks, something happens at a random moment, all end, and `Arena.settle` looks at everything.
"""

import contextlib
import http.client
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.helpers.live_server import PATIENCE, LiveServer, children, is_over

FAULTY = [sys.executable, "-P", str(Path(__file__).with_name("faulty_server.py"))]
SMALL = ("--threads", "1", "--kv-cache-memory", "16MiB", "--engine-timeout", "3")
LENGTH = 800  # tokens of a crowd's answer
NUM_PROMPTS = 5
LATEST_EVENT = 150  # a crowd gets about twice as many
GRACE_SECONDS = 1.0  # for which /ready may believe in an engine that is gone

Outcome = Literal["ok", "error", "unavailable", "refused", "left", "nothing"]
FAILURES = ("error", "unavailable", "refused")


def prompt_of(number: int) -> list[int]:
    """Of an innocent: each its own, and none begins with a fault."""
    return random.Random(number).choices(range(32, 250), k=10 + 7 * (number % NUM_PROMPTS))


@dataclass(frozen=True)
class Heard:
    """What a client heard. code: of the error; tokens: all that came."""

    outcome: Outcome
    status: int | None
    code: str | None = None
    message: str = ""
    tokens: tuple[int, ...] = ()


@dataclass
class Crowd:
    """Clients that ask at the same time. heard is complete once `join` has returned."""

    threads: list[threading.Thread] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    events: int = 0

    def until(self, events: int) -> None:
        """Until so many stream events have come to all of them together, or they have ended."""
        deadline = time.monotonic() + PATIENCE
        while self.events < events and any(thread.is_alive() for thread in self.threads):
            assert time.monotonic() < deadline, f"{self.events} events of {events}"
            time.sleep(0.001)

    def join(self) -> list[Heard]:
        """What each heard. None may hang."""
        deadline = time.monotonic() + PATIENCE
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not any(thread.is_alive() for thread in self.threads), "a client waits for ever"
        assert not self.wrong, "\n".join(self.wrong)
        assert len(self.heard) == len(self.threads), "a client failed"
        return self.heard


class ReadyWatch:
    """Asks /ready all the time, and looks at the engine's process itself."""

    def __init__(self, server: LiveServer) -> None:
        self._server = server
        self.states: list[str] = []  # that /ready told, without repetitions
        self.longest_lie_s = 0.0
        self.contradicts = False  # its status and its state, ever
        self._missing_since: float | None = None  # since when there is no engine that works
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "ReadyWatch":
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *how: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._look()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            with contextlib.suppress(OSError, http.client.HTTPException):  # the server is on its way out
                self._look()

    def _look(self) -> None:
        works = any(_works(pid) for pid in children(self._server.process.pid))
        self._missing_since = None if works else self._missing_since or time.monotonic()
        answer = self._server.request("GET", "/ready")
        state = answer.json()["state"]
        if not self.states or self.states[-1] != state:
            self.states.append(state)
        self.contradicts |= (answer.status == 200) != (state == "ready")
        if answer.status == 200 and self._missing_since is not None:
            self.longest_lie_s = max(self.longest_lie_s, time.monotonic() - self._missing_since)


def _works(pid: int) -> bool:
    """Neither dead nor stopped."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZXTt"
    return False


class Arena:
    """A server, and a book of what its clients heard since it started."""

    def __init__(self, server: LiveServer, *, seed: int = 0) -> None:
        self.server = server
        self.rng = random.Random(seed)
        self.book: Counter[Outcome] = Counter()
        self.statuses: Counter[int] = Counter()
        self._lock = threading.Lock()
        self.num_blocks = self._blocks("free") + self._blocks("cached")
        self.solo = [self.ask(prompt_of(number)).tokens for number in range(NUM_PROMPTS)]
        assert all(len(tokens) == LENGTH for tokens in self.solo)

    # what clients do

    def ask(self, prompt: Sequence[int], *, crowd: Crowd | None = None, note: bool = True, **fields: Any) -> Heard:
        """One request, to its end, written into the book."""
        body = {"prompt": list(prompt), "max_tokens": LENGTH, "temperature": 0, "ignore_eos": True}
        body |= {"return_token_ids": True} | fields
        heard = self._asked(body, crowd)
        if note:
            self.note(heard)
        return heard

    def note(self, heard: Heard) -> None:
        """Into the book."""
        with self._lock:
            self.book[heard.outcome] += 1
            if heard.status is not None:
                self.statuses[heard.status] += 1

    def _asked(self, body: Mapping[str, Any], crowd: Crowd | None) -> Heard:
        try:
            with self.server.stream("POST", "/v1/completions", body) as opened:
                while part := opened.response.read1(65536):
                    opened.so_far += part
                    if crowd is not None:
                        crowd.events += part.count(b"\n\n")
                got = opened.rest()
        except (OSError, http.client.HTTPException) as error:
            return Heard("nothing", None, message=repr(error))
        bodies = got.events() if body.get("stream") and got.status == 200 else [got.json()]
        tokens: list[int] = []
        for each in bodies:
            if each == "[DONE]":
                continue
            if "error" in each:
                return _failed(got.status, each["error"], tuple(tokens))
            for choice in each["choices"]:
                tokens += choice.get("token_ids") or ()
        return Heard("ok", got.status, tokens=tuple(tokens))

    def crowd(self) -> Crowd:
        """Innocents, two of three streaming, who ask at once. Whoever is answered was answered right."""
        crowd = Crowd()

        def ask(number: int) -> None:
            heard = self.ask(prompt_of(number), crowd=crowd, stream=number % 3 != 2)
            right = self.solo[number]
            if heard.tokens != right[: len(heard.tokens)] or (heard.outcome == "ok" and heard.tokens != right):
                crowd.wrong.append(f"{number}: {heard}, alone {right}")
            crowd.heard.append(heard)

        for number in range(NUM_PROMPTS):
            crowd.threads.append(threading.Thread(target=ask, args=(number,), daemon=True))
            crowd.threads[-1].start()
        return crowd

    def some_moment(self, crowd: Crowd) -> None:
        """Until anything between nothing and nearly all has come."""
        crowd.until(self.rng.randrange(1, LATEST_EVENT))

    @contextlib.contextmanager
    def watched(self, *, grace_s: float = GRACE_SECONDS) -> Iterator[ReadyWatch]:
        """While inside, /ready has to tell the truth."""
        with ReadyWatch(self.server) as watch:
            yield watch
        assert not watch.contradicts
        assert watch.longest_lie_s <= grace_s, f"/ready told of a dead engine for {watch.longest_lie_s:.1f} s"

    def kill_the_engine(self, number: signal.Signals = signal.SIGKILL) -> None:
        """And wait for the next one."""
        engine = os.pidfd_open(self.server.engine_pid)
        signal.pidfd_send_signal(engine, number)
        self.server.until(lambda: is_over(engine), "the old engine is still there")
        os.close(engine)
        self.until_ready()

    # what is left

    def until_ready(self) -> float:
        """How long that took."""
        began = time.monotonic()
        while self.server.request("GET", "/ready").status != 200:
            assert time.monotonic() < began + PATIENCE, "never ready again"
            time.sleep(0.1)  # all processors are needed to load the engine
        return time.monotonic() - began

    def settle(self) -> None:
        """When all have ended: a request is answered right, no block is lost, and the books agree."""
        self.until_ready()
        number = self.rng.randrange(NUM_PROMPTS)
        after = self.ask(prompt_of(number))
        assert (after.outcome, after.tokens) == ("ok", self.solo[number]), after
        self.server.until_idle()
        assert self._blocks("used") == 0
        assert self._blocks("free") + self._blocks("cached") == self.num_blocks
        self.compare_books()

    def _blocks(self, state: str) -> float:
        return self.server.figure(f'kvell_kv_cache_blocks{{state="{state}"}}')

    def counted(self) -> Counter[str]:
        """kvell_requests_total of completions, by outcome."""
        text = self.server.request("GET", "/metrics").body.decode()
        pattern = r'^kvell_requests_total\{endpoint="completions",outcome="(\w+)"\} (\S+)$'
        found = re.findall(pattern, text, re.MULTILINE)
        return Counter({outcome: int(float(count)) for outcome, count in found})

    def compare_books(self) -> None:
        """Every request of a client was counted once, as what it was, and has its line in the log.

        A client that left can't know what became of its request.
        """
        assert not self.book["nothing"], "a request vanished"
        total = sum(self.book.values())
        self.server.until(lambda: sum(self.counted().values()) >= total, f"not all of {self.book} are counted")
        counted = self.counted()
        assert sum(counted.values()) == total, (counted, self.book)
        failed = sum(self.book[each] for each in FAILURES)
        assert sum(counted[each] for each in FAILURES) == failed, (counted, self.book)
        assert 0 <= counted["ok"] - self.book["ok"] <= self.book["left"]
        if self.server.process.stderr is None:
            return
        self.server.until(lambda: sum(self._logged().values()) >= total, f"not all of {self.book} are logged")
        logged = self._logged()
        assert sum(logged.values()) == total
        refusals = {status: count for status, count in self.statuses.items() if status >= 400}
        assert {status: sum(n for (its, _), n in logged.items() if its == status) for status in refusals} == refusals
        outcomes = Counter(dict.fromkeys(counted, 0))
        for (_, outcome), count in logged.items():
            outcomes[outcome] += count
        assert outcomes == counted

    def _logged(self) -> Counter[tuple[int, str]]:
        """Log lines of completions by status and outcome."""
        pattern = re.compile(r"POST /v1/completions status=(\d{3}) outcome=(\w+) ")
        found = [pattern.search(line) for line in list(self.server.errors)]
        return Counter((int(line[1]), line[2]) for line in found if line)


def _failed(status: int, error: Mapping[str, Any], tokens: tuple[int, ...]) -> Heard:
    """By the error's code, and by whether it came after work had begun."""
    code, message = error["code"], error["message"]
    outcome: Outcome = "error"
    if code == "condemned_request" or (status == 400 and code != "generation_failed"):
        outcome = "refused"
    elif code in ("engine_unavailable", "overloaded", "shutting_down") and "worked on this request" not in message:
        outcome = "unavailable"
    return Heard(outcome, status, code, message, tokens)
