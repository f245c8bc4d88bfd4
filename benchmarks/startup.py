"""How long from starting a server to its being ready, and from SIGTERM to its end: medians of several runs.

    python benchmarks/startup.py --base-url http://127.0.0.1:8123 --runs 5 -- kvell serve --port 8123

Starts the command after `--` anew for each run and asks base URL + path until it answers 200. A line per run, then one
JSON object on the last line of stdout. Exit code 1 if a run did not get ready in time, or did not end with code 0.
"""

import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console

POLL_SECONDS = 0.02


class NotReady(Exception):
    """The server ended, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Run:
    """One life of the server."""

    ready_seconds: float
    stop_seconds: float
    exit_code: int


def answers(url: str) -> bool:
    """Whether a GET gives 200 now."""
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Poll the condition. Raises NotReady if the process ends first or the time is up."""
    limit = time.perf_counter() + timeout_s
    while not condition():
        if process.poll() is not None:
            raise NotReady(f"the server ended with code {process.returncode} before it was ready")
        if time.perf_counter() > limit:
            raise NotReady(f"the server was not ready within {timeout_s:g} s")
        time.sleep(POLL_SECONDS)


def run_once(command: Sequence[str], url: str, *, timeout_s: float) -> Run:
    """Start, wait for 200, stop with SIGTERM. Raises NotReady; leaves no process of the command's session behind."""
    if answers(url):
        raise NotReady(f"{url} already answers: another server is running")
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: answers(url), process, timeout_s)
        ready = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout_s)
        return Run(ready - began, time.perf_counter() - ready, code)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Medians, and each run."""
    return {
        "benchmark": "startup",
        "runs": len(runs),
        "ready_seconds": round(statistics.median(run.ready_seconds for run in runs), 3),
        "stop_seconds": round(statistics.median(run.stop_seconds for run in runs), 3),
        "all_ready_seconds": [round(run.ready_seconds, 3) for run in runs],
        "exit_codes": [run.exit_code for run in runs],
    }


def main(
    command: Annotated[list[str], typer.Argument(help="the server's command line, after --")],
    base_url: str = "http://127.0.0.1:8000",
    path: Annotated[str, typer.Option(help="answers 200 once the server is ready")] = "/ready",
    runs: Annotated[int, typer.Option(min=1)] = 5,
    timeout_s: Annotated[float, typer.Option(help="for getting ready, and for stopping")] = 120.0,
) -> None:
    """Time from start to ready."""
    console = Console()
    done: list[Run] = []
    for number in range(runs):
        try:
            done.append(run_once(command, base_url + path, timeout_s=timeout_s))
        except (NotReady, subprocess.TimeoutExpired, OSError) as error:
            console.print(f"run {number + 1}: {error}", markup=False)
            print(json.dumps({"benchmark": "startup", "error": str(error)}))
            raise typer.Exit(1) from error
        console.print(
            f"run {number + 1}: ready in {done[-1].ready_seconds:.2f} s, stopped in {done[-1].stop_seconds:.2f} s"
        )
    figures = summarise(done)
    console.print(f"median of {runs}: ready in {figures['ready_seconds']} s, stopped in {figures['stop_seconds']} s")
    print(json.dumps(figures))
    raise typer.Exit(1 if any(figures["exit_codes"]) else 0)


if __name__ == "__main__":
    typer.run(main)
