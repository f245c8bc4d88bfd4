"""Does a server's memory stay flat over many short requests, and does it rest when nobody asks? Linux only.

    python benchmarks/soak.py --pid PID_OF_THE_SERVER --requests 2000

Follows the given processes and all their descendants through /proc. The prompts repeat every PROMPTS requests, so that
a prefix cache fills during the warm-up and not while memory is watched. After the warm-up it samples their resident
memory while short completions run, then their CPU time while nothing does. A line per sample for people, then one JSON
object on the last line of stdout. Exit code 1 if memory grew or the idle server was busy by more than is allowed, or a
request failed.

Growth is the median of the last quarter of the samples less that of the first, so one odd sample decides nothing.
"""

import asyncio
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console

MIB = 2**20
PROMPTS = 100
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from its third field on (state, parent, ...); the name before it may hold spaces and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def process_tree(pids: Sequence[int]) -> list[int]:
    """The given processes and all their descendants, ascending. Raises ProcessLookupError if a given one is gone."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
    gone = set(pids) - set(parents)
    if gone:
        raise ProcessLookupError(f"no process {min(gone)}")
    tree = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sorted(tree)


def resident_bytes(pid: int) -> int:
    """Physical memory that the process has mapped, files included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time that the process has spent so far."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def growth(samples: Sequence[int]) -> int:
    """Median of the last quarter less median of the first."""
    quarter = max(len(samples) // 4, 1)
    return int(statistics.median(samples[-quarter:]) - statistics.median(samples[:quarter]))


async def ask(client: httpx.AsyncClient, model: str, number: int) -> bool:
    """One short completion; whether it succeeded."""
    prompt = f"{number % PROMPTS} bottles of milk stood on the wall, and when one of them fell down, there were"
    body = {"model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0}
    try:
        return (await client.post("/v1/completions", json=body)).status_code == 200
    except httpx.HTTPError:
        return False


async def ask_many(client: httpx.AsyncClient, model: str, numbers: range, *, clients: int) -> int:
    """All of them, `clients` at a time; how many failed."""
    waiting = iter(numbers)

    async def one_client() -> int:
        return sum([not await ask(client, model, number) for number in waiting])

    return sum(await asyncio.gather(*(one_client() for _ in range(clients))))


async def soak(
    client: httpx.AsyncClient,
    model: str,
    pids: Sequence[int],
    console: Console,
    *,
    requests: int,
    warmup: int,
    clients: int,
) -> tuple[dict[int, list[int]], int]:
    """Resident bytes of each process, sampled 40 times over the requests after the warm-up; and how many failed."""
    failed = await ask_many(client, model, range(warmup), clients=clients)
    tree = process_tree(pids)
    series: dict[int, list[int]] = {pid: [resident_bytes(pid)] for pid in tree}
    batch = max(requests // 40, 1)
    for start in range(0, requests, batch):
        numbers = range(warmup + start, warmup + min(start + batch, requests))
        failed += await ask_many(client, model, numbers, clients=clients)
        for pid in tree:
            series[pid].append(resident_bytes(pid))
        figures = "  ".join(f"{pid}: {series[pid][-1] / MIB:8.1f} MiB" for pid in tree)
        console.print(f"{start + len(numbers):6d} requests  {figures}", highlight=False)
    return series, failed


def idle_share(pids: Sequence[int], seconds: float) -> float:
    """CPU time over wall time, 1 being one core, while nothing is asked for so long."""
    before, began = sum(map(cpu_seconds, pids)), time.perf_counter()
    time.sleep(seconds)
    return (sum(map(cpu_seconds, pids)) - before) / max(time.perf_counter() - began, 1 / TICKS_PER_SECOND)


def judge(
    series: dict[int, list[int]], share: float, failed: int, *, allowed_mib: float, allowed_idle_percent: float
) -> dict[str, Any]:
    """The figures, and whether they are good enough."""
    grown = {pid: growth(samples) for pid, samples in series.items()}
    total = growth([sum(moment) for moment in zip(*series.values(), strict=True)])
    return {
        "benchmark": "soak",
        "failed_requests": failed,
        "resident_mib": {str(pid): [round(each / MIB, 1) for each in samples] for pid, samples in series.items()},
        "growth_mib": {str(pid): round(each / MIB, 2) for pid, each in grown.items()},
        "total_growth_mib": round(total / MIB, 2),
        "idle_cpu_percent": round(100 * share, 2),
        "memory_is_flat": total <= allowed_mib * MIB,
        "idle_is_idle": 100 * share <= allowed_idle_percent,
    }


async def measure(
    base_url: str,
    pids: Sequence[int],
    console: Console,
    *,
    requests: int,
    warmup: int,
    clients: int,
    idle_seconds: float,
) -> tuple[dict[int, list[int]], float, int]:
    """The memory under load, then the share of a core at rest."""
    async with httpx.AsyncClient(base_url=base_url, timeout=120) as client:
        model = (await client.get("/v1/models")).raise_for_status().json()["data"][0]["id"]
        series, failed = await soak(client, model, pids, console, requests=requests, warmup=warmup, clients=clients)
    return series, idle_share(list(series), idle_seconds), failed


def main(
    pid: Annotated[list[int], typer.Option(help="the server's process; its descendants are found")],
    base_url: Annotated[str, typer.Option(help="without /v1")] = "http://127.0.0.1:8000",
    requests: Annotated[int, typer.Option(min=1)] = 2000,
    warmup: Annotated[int, typer.Option(min=0)] = 200,
    clients: Annotated[int, typer.Option(min=1)] = 8,
    idle_seconds: Annotated[float, typer.Option(help="how long to watch the server at rest")] = 20.0,
    allowed_mib: Annotated[float, typer.Option(help="growth that counts as flat, of all processes together")] = 8.0,
    allowed_idle_percent: Annotated[float, typer.Option(help="of one core")] = 2.0,
) -> None:
    """Resident memory over many short requests, and CPU time at rest."""
    console = Console()
    series, share, failed = asyncio.run(
        measure(base_url, pid, console, requests=requests, warmup=warmup, clients=clients, idle_seconds=idle_seconds)
    )
    figures = judge(series, share, failed, allowed_mib=allowed_mib, allowed_idle_percent=allowed_idle_percent)
    console.print(
        f"grew by {figures['total_growth_mib']} MiB in {requests} requests, "
        f"{figures['idle_cpu_percent']} % of a core at rest, {failed} requests failed"
    )
    print(json.dumps(figures))
    raise typer.Exit(0 if figures["memory_is_flat"] and figures["idle_is_idle"] and not failed else 1)


if __name__ == "__main__":
    typer.run(main)
