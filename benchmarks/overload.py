"""Twice as many requests as a server can answer: what becomes of them? Linux, idle machine.

    python -m benchmarks.overload MODEL --seconds 300

Starts kvell with its default settings (and what follows --) and drives `kvell bench serve`:
  capacity   answers a second while far more arrive than can be answered
  at once    goodput where requests arrive at that rate, and at twice that rate (first token within 2 s, 95 % of the
             gaps within 150 ms), and how long refusals take
  returning  twice the rate, and clients come back when told
  burst      a thousand requests with bodies of 1 MB at once
  beside     the same beside twice the rate, for comparison
Memory of the server's processes is sampled all the while. A line per run, then one JSON object on the last line. Exit
code 1 if something is not as it should be.
"""

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from subprocess import run as run_command
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.peer.processes import environment, last_json
from benchmarks.peer.servers import BENCH, Command, Server
from benchmarks.soak import MIB, growth, process_tree, resident_bytes

# a cache that the first two runs fill: its pages become resident as they are first used, which is no leak
START = (*BENCH[:3], "serve", "--kv-cache-memory", "512MiB")
GOOD = "ttft:2000 itl-p95:150"
SIZES = ("--prompt-tokens", "64-192", "--output-tokens", "32-96")
BODY_WORDS = 230_000  # of 4.4 letters and spaces
LEAST_GOODPUT = 0.85
MOST_REFUSAL_MS = 50.0
MOST_BURST_MS = 3000.0
LEAST_ADMITTED = 0.8
MOST_GROWTH_MIB = 32.0


def load(url: str, *options: str, seed: int) -> list[str]:
    """The command of one load."""
    return [*BENCH, "--url", url, *SIZES, "--goodput", GOOD, "--warmup", "0", "--seed", str(seed), *options]


class Memory:
    """Resident memory of a server's processes, sampled until the end of the block."""

    def __init__(self, pid: int, every_s: float = 1.0) -> None:
        self.samples: list[int] = []
        self._pid = pid
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *how: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(self._every_s):
            self.samples.append(sum(map(resident_bytes, process_tree([self._pid]))))


def measure(url: str, pid: int, seconds: float, console: Console) -> dict[str, Any]:
    """All runs, one after the other."""

    def run(name: str, *options: str, seed: int) -> dict[str, Any]:
        # nothing at all may come of a run, which its exit code says; its figures are wanted all the same
        done = run_command(load(url, *options, seed=seed), stdout=PIPE, text=True, env=environment({}), check=False)
        figures: dict[str, Any] = last_json(done.stdout)
        console.print(line(name, figures), highlight=False, markup=False)
        return figures

    found: dict[str, Any] = {}
    short = str(min(60.0, seconds))  # the time to the last answer counts too: a short run shows less than there is
    capacity = run("capacity", "--rate", "20", "--duration", short, seed=1)
    rate = found["capacity_per_second"] = capacity["outcomes"]["ok"] / capacity["seconds"]
    found["at_capacity"] = run("at capacity", "--rate", str(rate), "--duration", short, seed=2)
    with Memory(pid) as memory:
        found["at_twice"] = run("at twice that", "--rate", str(2 * rate), "--duration", str(seconds), seed=3)
    found["memory_mib"] = [round(sample / MIB, 1) for sample in memory.samples]
    returning = ("--rate", str(2 * rate), "--duration", short, "--retry-after")
    found["returning"] = run("coming back when told", *returning, seed=4)
    bodies = ("--prompt-tokens", str(BODY_WORDS + 10), "--shared-prefix", str(BODY_WORDS))
    burst = (*bodies, "--rate", "inf", "--num-requests", "1000")
    found["burst"] = run("a thousand at once", *burst, seed=6)
    crowd = load(url, "--rate", str(2 * rate), "--duration", "12", seed=5)
    beside = Popen(crowd, stdout=DEVNULL, stderr=DEVNULL, env=environment({}))
    time.sleep(5)  # until the overload is one
    found["beside"] = run("a thousand beside that", *burst, seed=7)
    beside.wait()
    return found


def line(name: str, figures: dict[str, Any]) -> str:
    """One run in a line."""
    outcomes = ", ".join(f"{number} {kind}" for kind, number in figures["outcomes"].items() if number)
    good, refusal = figures["goodput"]["requests_per_second"], figures["time_to_refusal_ms"]["p99"]
    first, gap = figures["time_to_first_token_ms"], figures["inter_token_ms"]
    back = figures.get("returned")
    parts = [f"{name:22} good {good:.2f}/s of {outcomes}"]
    parts += [f"first token p50 {first['p50']:.0f} p99 {first['p99']:.0f}"] if first["p50"] is not None else []
    parts += [f"gaps p95 {gap['p95']:.0f}"] if gap["p95"] is not None else []
    parts += [f"refusals p99 {refusal:.1f}"] if refusal is not None else []
    parts += [f"{back['requests']} came back, {back['share']:.0%} let in"] if back else []
    parts += [f"all statuses within {figures['time_to_status_ms']['max']:.0f} ms"] if name.startswith("a thou") else []
    return "; ".join(parts)


def judge(found: dict[str, Any]) -> dict[str, Any]:
    """What holds and what does not."""
    good = {name: found[name]["goodput"]["requests_per_second"] for name in ("at_capacity", "at_twice")}
    samples = [int(sample * MIB) for sample in found["memory_mib"]]
    honest = ("ok", "503", "429")
    strange = {
        name: {kind: number for kind, number in found[name]["outcomes"].items() if number and kind not in honest}
        for name in ("at_capacity", "at_twice", "returning")
    }
    share = good["at_twice"] / max(good["at_capacity"], 1e-9)
    returned, burst = found["returning"].get("returned", {"share": 0.0}), found["burst"]
    answered = burst["requests"] - sum(burst["outcomes"][kind] for kind in ("timeout", "reset", "cut stream"))
    grown = growth(samples) / MIB if samples else 0.0
    return {
        "benchmark": "overload",
        **found,
        "goodput_share": round(share, 3),
        "memory_growth_mib": round(grown, 1),
        "holds": {
            "goodput at twice the capacity": share >= LEAST_GOODPUT,
            "refusals in time": found["at_twice"]["time_to_refusal_ms"]["p99"] <= MOST_REFUSAL_MS,
            "nothing but answers and honest refusals": not any(strange.values()),
            "those who come back are let in": returned["share"] >= LEAST_ADMITTED,
            "a thousand with large bodies are answered": answered == burst["requests"]
            and burst["time_to_status_ms"]["max"] <= MOST_BURST_MS,
            "memory is flat": grown <= MOST_GROWTH_MIB,
        },
    }


def main(
    model: Annotated[str, typer.Argument(help="as for kvell serve")],
    settings: Annotated[list[str] | None, typer.Argument(help="more of kvell serve's, after --")] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="of the run at twice; others: 60 at most")] = 300.0,
    log: Annotated[Path | None, typer.Option(help="also write the JSON there")] = None,
) -> None:
    """Load at a server's capacity and at twice that."""
    console = Console(width=200)
    arguments: Sequence[str] = [*START, model, *(settings or [])]
    with Server(Command(lambda port: [*arguments, "--port", str(port)], "/ready")) as server:
        server.wait_ready(120)
        figures = judge(measure(server.url, server.pid, seconds, console))
    for what, holds in figures["holds"].items():
        console.print(f"{'yes' if holds else 'NO':4} {what}", highlight=False)
    if log is not None:
        log.write_text(json.dumps(figures))
    print(json.dumps(figures))
    raise typer.Exit(0 if all(figures["holds"].values()) else 1)


if __name__ == "__main__":
    typer.run(main)
