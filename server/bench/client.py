"""Sends one request and follows its answer to the end, whatever the server does. Never raises for what it did."""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from server.bench.http import Connection, HTTPFailed, Pool
from server.bench.outcome import Kind, Outcome
from server.bench.workload import Workload

DETAIL_CHARS = 200


@dataclass(slots=True)
class Tally:
    """How a run stands, for whoever watches."""

    in_flight: int = 0
    pieces: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter)


class Client:
    """Requests of one workload to one server. timeout_s: the longest that a request may take from its sending."""

    def __init__(
        self, pool: Pool, workload: Workload, model: str, *, timeout_s: float, clock: Callable[[], float]
    ) -> None:
        self.tally = Tally()
        self._pool = pool
        self._workload = workload
        self._model = model
        self._timeout_s = timeout_s
        self._clock = clock

    async def ask(self, outcome: Outcome) -> Outcome:
        """Send it now and fill in what happens."""
        self.tally.in_flight += 1
        outcome.sent = self._clock()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._exchange(outcome)
        except TimeoutError:
            outcome.fail("timeout", f"no end after {self._timeout_s:g} s")
        except HTTPFailed as error:
            outcome.fail("cut stream" if outcome.answered else "reset", str(error))
        outcome.ended = self._clock()
        outcome.output_tokens = outcome.output_tokens or len(outcome.pieces)  # servers without usage
        self.tally.in_flight -= 1
        self.tally.kinds[outcome.kind] += 1
        return outcome

    async def _exchange(self, outcome: Outcome) -> None:
        """Raises HTTPFailed. A connection that the server closed while it was idle is no fault: another one is made."""
        body = self._workload.body(outcome.number, self._model)
        head = self._pool.head("POST", self._workload.path, sum(map(len, body)))
        while True:
            connection = await self._pool.take()
            try:
                connection.send([head])
                outcome.head_sent = self._clock()
                connection.send(body)
                status = await connection.head()
                outcome.answered = self._clock()
                await self._read(connection, status, outcome)
                return
            except HTTPFailed:
                if outcome.answered or not connection.used:
                    raise
            finally:
                self._pool.give_back(connection)

    async def _read(self, connection: Connection, status: int, outcome: Outcome) -> None:
        if status != 200:
            text = b"".join([part async for part in connection.body()]).decode(errors="replace")
            kinds: dict[int, Kind] = {429: "429", 503: "503"}
            outcome.fail(kinds.get(status, "other status"), f"HTTP {status}: {_message(text)}")
            outcome.retry_after_s = _seconds(connection.headers.get("retry-after", ""))
            return
        done = False
        async for data in sse_data(connection.body()):
            if data == b"[DONE]":
                done = True
                continue
            pieces = len(outcome.pieces)
            outcome.note(data, self._clock())
            self.tally.pieces += len(outcome.pieces) - pieces
        if not done:
            outcome.fail("cut stream", "the stream ended without [DONE]")


async def sse_data(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each server-sent event, which OpenAI sends as one line; comments and other fields are skipped."""
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def _message(text: str) -> str:
    """What the server says, in short and without its numbers, so that equal reasons read alike."""
    try:
        error = json.loads(text)["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, LookupError, TypeError):
        pass
    return re.sub(r"[0-9]+(\.[0-9]+)?", "N", text[:DETAIL_CHARS])


def _seconds(retry_after: str) -> float | None:
    """None where there is no such header, or a date, which no server of this kind sends."""
    try:
        seconds = float(retry_after)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
