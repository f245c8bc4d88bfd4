"""Do running streams stay even while a long prompt is read, and what does that cost the prompt? Linux, idle machine.

    python -m benchmarks.pacing MODEL --prompt-tokens 8000 --streams 8

Starts kvell twice, with --target-inter-token-ms as asked and with none to speak of. Each time so many streams run when
the long prompt comes, and the gaps between their tokens count from its sending to its first token. A table, then one
JSON object on the last line. Exit code 1 if the gaps' p99 is over 1.5 times the target, or the prompt is read at less
than three quarters of the speed that it has without a target.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.peer.servers import Command, Server
from server.bench.client import Client
from server.bench.command import served_model
from server.bench.figures import spread_ms
from server.bench.http import Address, Pool
from server.bench.outcome import Outcome
from server.bench.workload import Lengths, Workload

NO_TARGET_MS = 60_000
MOST_OVER_TARGET = 1.5
LEAST_OF_SPEED = 0.75
START = (sys.executable, "-c", "from server.cli import main; main()", "serve")


@dataclass(frozen=True, slots=True)
class Load:
    """Streams with short prompts, and one long prompt in their midst. In tokens."""

    streams: int
    prompt_tokens: int
    stream_tokens: int = 2000
    timeout_s: float = 120.0


def gaps_between(outcomes: Sequence[Outcome], begin: float, end: float) -> list[float]:
    """The gaps of all streams that end in that span of time."""
    return [later - earlier for each in outcomes for earlier, later in pairwise(each.pieces) if begin <= later <= end]


async def read_among_streams(url: str, load: Load) -> dict[str, Any]:
    """Gaps of the streams in ms, and the prompt's tokens a second, while it is read."""
    pool = Pool(Address.parse(url))
    model, _ = await served_model(pool, url)

    def client(prompt: int, answer: int) -> Client:
        workload = Workload(Lengths(prompt, prompt), Lengths(answer, answer), ignore_eos=True)
        return Client(pool, workload, model, timeout_s=load.timeout_s, clock=time.perf_counter)

    streaming = client(16, load.stream_tokens)
    streams = [Outcome(number, due=time.perf_counter()) for number in range(load.streams)]
    tasks = [asyncio.create_task(streaming.ask(each)) for each in streams]
    while not all(len(each.pieces) > 16 for each in streams):
        await asyncio.sleep(0.05)
    long = await client(load.prompt_tokens, 2).ask(Outcome(0, due=time.perf_counter()))
    running = sum(not task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    pool.close()
    if not long.pieces or running < load.streams:
        raise RuntimeError(f"the prompt ended as {long.kind} {long.detail}, {running} streams ran at its end")
    return {
        "inter_token_ms": spread_ms(gaps_between(streams, long.sent, long.pieces[0])),
        "prompt_tokens": long.input_tokens,
        "prompt_tokens_per_second": round(long.input_tokens / (long.pieces[0] - long.sent), 1),
    }


def judge(paced: dict[str, Any], free: dict[str, Any], target_ms: float) -> dict[str, Any]:
    """The figures, and whether they are good enough."""
    share = paced["prompt_tokens_per_second"] / free["prompt_tokens_per_second"]
    p99 = paced["inter_token_ms"]["p99"]
    return {
        "benchmark": "pacing",
        "target_ms": target_ms,
        "paced": paced,
        "without_target": free,
        "share_of_prompt_speed": round(share, 3),
        "even_enough": p99 <= MOST_OVER_TARGET * target_ms,
        "fast_enough": share >= LEAST_OF_SPEED,
    }


def main(
    model: Annotated[str, typer.Argument(help="as for kvell serve")],
    prompt_tokens: Annotated[int, typer.Option(min=1)] = 8000,
    streams: Annotated[int, typer.Option(min=1)] = 8,
    target_ms: Annotated[int, typer.Option(min=1)] = 100,
) -> None:
    """Streams beside a long prompt, with a target and without."""
    found = []
    for target in (target_ms, NO_TARGET_MS):
        arguments = [*START, model, "--target-inter-token-ms", str(target)]
        with Server(Command(lambda port, start=arguments: [*start, "--port", str(port)], "/ready")) as server:
            server.wait_ready(120)
            found.append(asyncio.run(read_among_streams(server.url, Load(streams, prompt_tokens))))
    figures = judge(found[0], found[1], target_ms)
    console = Console()
    for name in ("paced", "without_target"):
        its = figures[name]
        gaps = ", ".join(f"{point} {value:,.0f}" for point, value in its["inter_token_ms"].items())
        console.print(f"{name:14}  {its['prompt_tokens_per_second']:,} prompt tokens/s, gaps in ms: {gaps}")
    print(json.dumps(figures))
    raise typer.Exit(0 if figures["even_enough"] and figures["fast_enough"] else 1)


if __name__ == "__main__":
    typer.run(main)
