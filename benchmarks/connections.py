"""Does a server stay right beside thousands of idle connections and clients that hang up at random? Linux only.

    python benchmarks/connections.py --pid PID_OF_THE_SERVER

Holds --idle connections that say nothing (those that the server closes are opened again), starts --aborts requests
a second and leaves each at a random moment, half of them with a reset, and meanwhile asks a few plain questions again
and again. Their answers must be those from before. Afterwards every block must be free or cached, and memory back.

A line per stage for people, then one JSON object on the last line of stdout. Exit code 1 if anything of that failed.
"""

import asyncio
import contextlib
import json
import re
import resource
import socket
import statistics
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import typer
from rich.console import Console

from benchmarks.soak import MIB, process_tree, resident_bytes

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset
PATIENCE_S = 60.0
STAY_S = 0.3  # how long those that leave stay on average
ADDRESSES = 16  # of this machine, so that ports to connect from don't run out


@dataclass
class Idlers:
    """Connections that say nothing. Those that end are opened again, as long as they are `held`."""

    host: str
    port: int
    reopened: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @asynccontextmanager
    async def held(self, count: int) -> AsyncIterator[None]:
        """So many are open."""
        tasks = [asyncio.create_task(self._hold(number)) for number in range(count)]
        while len(self.writers) < count:
            await asyncio.sleep(0.1)
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _hold(self, number: int) -> None:
        address = (f"127.0.0.{2 + number % ADDRESSES}", 0) if self.host == "127.0.0.1" else None
        while True:
            try:
                reader, writer = await asyncio.open_connection(self.host, self.port, local_addr=address)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            self.writers.add(writer)
            try:
                with contextlib.suppress(OSError):
                    await reader.read(1)
            finally:
                self.writers.discard(writer)
                writer.transport.abort()
            self.reopened += 1


async def abort_one(host: str, port: int, body: bytes, rng: Random) -> str:
    """Ask for a long stream and leave at a random moment; what was there to be seen of it."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        whole = head.encode() + b"\r\n\r\n" + body
        writer.write(whole[: rng.randrange(len(whole))] if rng.random() < 0.2 else whole)
        await writer.drain()
        seen = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rng.expovariate(1 / STAY_S)):
                while part := await reader.read(4096):
                    seen += part
        if rng.random() < 0.5:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return seen[9:12].decode() or "nothing"
    finally:
        writer.transport.abort()


async def abort_many(host: str, port: int, bodies: Callable[[], bytes], *, rate: float, seconds: float) -> Counter[str]:
    """So many a second at random moments, each on its own; how each was left, by the status seen."""
    rng, seen, running = Random(1), Counter[str](), set[asyncio.Task[None]]()

    async def one() -> None:
        try:
            seen[await abort_one(host, port, bodies(), rng)] += 1
        except OSError as error:
            seen[type(error).__name__] += 1

    end, due = time.monotonic() + seconds, time.monotonic()
    while due < end:
        await asyncio.sleep(due - time.monotonic())
        task = asyncio.create_task(one())
        running.add(task)
        task.add_done_callback(running.discard)
        due += rng.expovariate(rate)
    await asyncio.gather(*running)
    return seen


async def question(client: httpx.AsyncClient, model: str, number: int) -> str:
    """What is answered, every token and log-probability of it; "status NNN" where it isn't."""
    body = {"model": model, "prompt": f"{number} bottles of milk stood on the", "max_tokens": 8, "temperature": 0}
    answer = await client.post("/v1/completions", json=body | {"logprobs": 1})
    return json.dumps(answer.json()["choices"]) if answer.status_code == 200 else f"status {answer.status_code}"


async def ask_meanwhile(
    client: httpx.AsyncClient, model: str, expected: Sequence[str], over: Awaitable[Any], *, clients: int
) -> tuple[Counter[str], list[float]]:
    """Ask over and over until `over`; how many answers were right, wrong or refused, and the seconds each took."""
    ended = asyncio.ensure_future(over)
    outcomes, seconds = Counter[str](), list[float]()

    async def one(first: int) -> None:
        number = first
        while not ended.done():
            number = (number + 1) % len(expected)
            began = time.monotonic()
            try:
                said = await question(client, model, number)
            except httpx.HTTPError as error:
                said = type(error).__name__
            seconds.append(time.monotonic() - began)
            refused = said in ("status 429", "status 503")
            outcomes["right" if said == expected[number] else "refused" if refused else f"wrong: {said[:80]}"] += 1

    await asyncio.gather(*(one(number) for number in range(clients)))
    return outcomes, seconds


async def figures(client: httpx.AsyncClient) -> Counter[str]:
    """Sequences under way, and blocks by state."""
    text = (await client.get("/metrics")).text
    found = re.findall(r'^kvell_(?:requests|kv_cache_blocks)(?:_|\{state=")(\w+)(?:"\})? (\S+)$', text, re.MULTILINE)
    return Counter({name: int(float(value)) for name, value in found})


async def at_rest(client: httpx.AsyncClient) -> Counter[str]:
    """The figures once nothing runs or waits."""
    async with asyncio.timeout(PATIENCE_S):
        while (now := await figures(client))["running"] + now["waiting"]:
            await asyncio.sleep(0.1)
    return now


async def fill_cache(client: httpx.AsyncClient, model: str, rng: Random) -> None:
    """Ask until every block is in use as cache: memory that is first touched later would look like a leak."""
    while (await figures(client))["free"] > 1:
        prompt = [rng.randrange(100, 1000) for _ in range(400)]
        (await client.post("/v1/completions", json={"model": model, "prompt": prompt})).raise_for_status()


async def measure(url: str, pid: int, console: Console, *, idle: int, rate: float, seconds: float) -> dict[str, Any]:
    """The whole run."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    rng, tree = Random(2), process_tree([pid])

    def memory() -> float:
        return round(sum(map(resident_bytes, tree)) / MIB, 1)

    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        model = (await client.get("/v1/models")).raise_for_status().json()["data"][0]["id"]

        def body() -> bytes:
            prompt = [rng.randrange(100, 1000) for _ in range(rng.randint(1, 40))]
            return json.dumps({"model": model, "prompt": prompt, "max_tokens": 200, "stream": True}).encode()

        expected = [await question(client, model, number) for number in range(20)]
        await fill_cache(client, model, rng)
        idlers = Idlers(host, port)
        async with idlers.held(idle):  # what is allocated once, is then
            await abort_many(host, port, body, rate=rate, seconds=min(10, seconds))
        before, began = await at_rest(client), memory()
        console.print(f"before: {dict(before)}, {began} MiB", highlight=False)
        idlers.reopened = 0
        async with idlers.held(idle):
            with_idle = memory()
            console.print(f"{idle} idle connections are open: {with_idle} MiB", highlight=False)
            storm = asyncio.create_task(abort_many(host, port, body, rate=rate, seconds=seconds))
            outcomes, times = await ask_meanwhile(client, model, expected, storm, clients=4)
            still_open = len(idlers.writers)
        after = await at_rest(client)
        console.print(f"after: {dict(after)}, {memory()} MiB; aborted: {dict(storm.result())}", highlight=False)
        again = [await question(client, model, number) for number in range(20)]
    return {
        "benchmark": "connections",
        "idle_connections": {"open_at_the_end": still_open, "opened_again": idlers.reopened},
        "aborted": dict(storm.result()),
        "asked": dict(outcomes),
        "median_seconds": round(statistics.median(times), 3),
        "p99_seconds": round(sorted(times)[int(0.99 * len(times))], 3),
        "resident_mib": {"before": began, "with_idle": with_idle, "after": memory()},
        "blocks": {state: after[state] for state in ("used", "cached", "free")},
        "right_afterwards": again == expected,
        "no_block_lost": after["used"] == 0 and after["cached"] + after["free"] == before["cached"] + before["free"],
    }


def good(report: dict[str, Any], *, allowed_mib: float) -> bool:
    """Whether nothing was lost, wrong or left lying about."""
    resident = report["resident_mib"]
    only = set(report["asked"]) <= {"right", "refused"} and report["asked"].get("right", 0) > 0
    flat = resident["after"] - resident["before"] <= allowed_mib
    return bool(only and flat and report["right_afterwards"] and report["no_block_lost"])


def main(
    pid: Annotated[int, typer.Option(help="the server's process; its descendants are found")],
    url: Annotated[str, typer.Option(help="without /v1")] = "http://127.0.0.1:8000",
    idle: Annotated[int, typer.Option(min=0)] = 10_000,
    aborts: Annotated[float, typer.Option(help="requests a second that are left")] = 200.0,
    seconds: Annotated[float, typer.Option(help="how long")] = 60.0,
    allowed_mib: Annotated[float, typer.Option(help="more than before that counts as memory that is back")] = 64.0,
) -> None:
    """Idle connections and random hang-ups beside plain requests."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    report = asyncio.run(measure(url, pid, Console(), idle=idle, rate=aborts, seconds=seconds))
    print(json.dumps(report))
    raise typer.Exit(0 if good(report, allowed_mib=allowed_mib) else 1)


if __name__ == "__main__":
    typer.run(main)
