"""What a prefix cache on disk saves: time to first token of a long prompt, computed, in memory, and after a restart.

    python benchmarks/restart.py --base-url http://127.0.0.1:8123 -- \
        kvell serve --port 8123 --prefix-cache-dir new-folder

Starts the command after `--` twice on a folder that must be new. The first server computes each prompt and is asked
again; the second reads them. Prompts are random token ids, of which nothing is cached. A line per prompt, then one JSON
object on the last line of stdout. Exit code 1 if an answer differs, or a prompt was not read from disk.
"""

import json
import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console

from benchmarks.startup import NotReady, answers, wait_until

PATIENCE_S = 120.0
Answer = tuple[float, int, list[int]]  # seconds to the first token, cached tokens, tokens


@contextmanager
def server(command: Sequence[str], url: str) -> Iterator[httpx.Client]:
    """One life of the server, ready; ended by SIGTERM."""
    if answers(f"{url}/ready"):
        raise NotReady(f"{url} already answers: another server is running")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: answers(f"{url}/ready"), process, PATIENCE_S)
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            yield client
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def ask(client: httpx.Client, prompt: Sequence[int]) -> Answer:
    """Eight tokens, streamed."""
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "stream": True}
    body |= {"return_token_ids": True, "stream_options": {"include_usage": True}}
    first, tokens, cached = 0.0, list[int](), 0
    began = time.perf_counter()
    with client.stream("POST", "/v1/completions", json=body) as answer:
        for line in answer.raise_for_status().iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            for choice in event["choices"]:
                first = first or time.perf_counter() - began
                tokens += choice.get("token_ids") or ()
            if usage := event.get("usage"):
                cached = usage["prompt_tokens_details"]["cached_tokens"]
    return first, cached, tokens


def blocks(client: httpx.Client, action: str) -> int:
    """How many blocks the disk has taken or given so far."""
    text = client.get("/metrics").text
    found = re.search(rf'^kvell_prefix_cache_disk_blocks_total{{action="{action}"}} (\S+)$', text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def wait_for_blocks(client: httpx.Client, count: int) -> float:
    """Seconds until so many are written."""
    began = time.perf_counter()
    while blocks(client, "written") < count:
        if time.perf_counter() - began > PATIENCE_S:
            raise NotReady(f"{blocks(client, 'written')} of {count} blocks were written")
        time.sleep(0.01)
    return time.perf_counter() - began


def summarise(cold: Sequence[Answer], warm: Sequence[Answer], disk: Sequence[Answer]) -> dict[str, Any]:
    """Medians, and whether it was all as it should be."""
    runs = {"computed": cold, "from_memory": warm, "from_disk": disk}
    return {
        "benchmark": "restart",
        "first_token_seconds": {name: round(statistics.median(a[0] for a in its), 4) for name, its in runs.items()},
        "all_seconds": {name: [round(a[0], 4) for a in its] for name, its in runs.items()},
        "cached_tokens": {name: [a[1] for a in its] for name, its in runs.items()},
        "same_tokens": all(len({tuple(a[2]) for a in its}) == 1 for its in zip(cold, warm, disk, strict=True)),
    }


def main(
    command: Annotated[list[str], typer.Argument(help="the server's command line, after --")],
    base_url: Annotated[str, typer.Option(help="without /v1")] = "http://127.0.0.1:8000",
    tokens: Annotated[int, typer.Option(min=16)] = 2000,
    prompts: Annotated[int, typer.Option(min=1)] = 3,
    block_size: int = 16,
) -> None:
    """Time to first token before and after a restart."""
    console, rng = Console(), Random(1)
    texts = [[rng.randrange(100, 10_000) for _ in range(tokens)] for _ in range(prompts)]
    with server(command, base_url) as client:
        cold = [ask(client, prompt) for prompt in texts]
        seconds = wait_for_blocks(client, prompts * (tokens // block_size))
        console.print(f"the blocks were on disk {seconds:.2f} s after the last answer")
        warm = [ask(client, prompt) for prompt in texts]
    with server(command, base_url) as client:
        disk = [ask(client, prompt) for prompt in texts]
    for a, b, c in zip(cold, warm, disk, strict=True):
        console.print(f"computed {a[0]:.3f} s, from memory {b[0]:.3f} s, after a restart {c[0]:.3f} s ({c[1]} cached)")
    figures = summarise(cold, warm, disk)
    print(json.dumps(figures))
    expected = (tokens - 1) // block_size * block_size
    raise typer.Exit(0 if figures["same_tokens"] and min(a[1] for a in disk) == expected else 1)


if __name__ == "__main__":
    typer.run(main)
