"""Closed-loop load on any server that speaks OpenAI's streaming API: how soon, how fast and how evenly tokens come.

Each of N clients sends a request, reads its stream to the end, and sends the next one, until all requests are done.

    python benchmarks/load.py --base-url http://127.0.0.1:8000 --clients 16 --input-tokens 128 --output-tokens 128

A table for people, then one JSON object on the last line of stdout. Exit code 1 if any request failed.
Knows nothing of kvell. Times are the client's: from sending the request to the arrival of a piece of text; a gap is the
time between two pieces, which servers send one per token as a rule.
"""

import asyncio
import json
import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import httpx
import typer
from rich.console import Console
from rich.table import Table

# Common words, which most vocabularies have as one token together with the space before them.
COMMON = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one you
were all her she there would their we him been has when who will no more if out so said what up its about than into them
can only other time new some could these two may first then do any like my now over such our man me even most made after
also did many off before must well back through years much where your way down should because long
"""
WORDS = COMMON.split()

Endpoint = Literal["completions", "chat"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is sent. input_tokens counts words; the first shared_prefix_tokens of them are the same in all requests."""

    clients: int
    requests: int
    input_tokens: int
    output_tokens: int
    shared_prefix_tokens: int = 0
    endpoint: Endpoint = "completions"
    temperature: float = 0.0
    ignore_eos: bool = True
    seed: int = 0

    @property
    def path(self) -> str:
        """Where it is sent."""
        return "/v1/chat/completions" if self.endpoint == "chat" else "/v1/completions"

    def prompt(self, number: int) -> str:
        """Request number's words, the same in every run with this seed."""
        shared = min(self.shared_prefix_tokens, self.input_tokens)
        words = random.Random(f"{self.seed} shared").choices(WORDS, k=shared)
        words += random.Random(f"{self.seed} {number}").choices(WORDS, k=self.input_tokens - shared)
        return " ".join(words)

    def body(self, number: int, model: str) -> dict[str, Any]:
        """The JSON of request number."""
        prompt = self.prompt(number)
        asked = {"messages": [{"role": "user", "content": prompt}]} if self.endpoint == "chat" else {"prompt": prompt}
        forced = {"ignore_eos": True} if self.ignore_eos else {}
        return {
            "model": model,
            **asked,
            "max_tokens": self.output_tokens,
            "temperature": self.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
            **forced,
        }


@dataclass(slots=True)
class Outcome:
    """One request as its client saw it; times are readings of one clock, in seconds. pieces: when text arrived."""

    started: float
    ended: float = 0.0
    pieces: list[float] = field(default_factory=list)
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None

    def note(self, chunk: dict[str, Any], now: float) -> None:
        """Take in one parsed event of the stream."""
        if error := chunk.get("error"):
            self.error = f"error event: {error.get('message', error) if isinstance(error, dict) else error}"
        if any(_text(choice) for choice in chunk.get("choices") or ()):
            self.pieces.append(now)
        if usage := chunk.get("usage"):
            self.input_tokens = usage["prompt_tokens"]
            self.output_tokens = usage["completion_tokens"]
            self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def _text(choice: dict[str, Any]) -> str:
    return choice.get("text") or (choice.get("delta") or {}).get("content") or ""


async def sse_data(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The data of each server-sent event, which OpenAI sends as one line; comments and other fields are skipped."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip().decode()


async def run_request(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], clock: Callable[[], float]
) -> Outcome:
    """Send one request and follow its stream to the end. Never raises for what the server or the network did."""
    outcome = Outcome(started=clock())
    done = False
    try:
        async with client.stream("POST", path, json=body) as response:
            if response.status_code != 200:
                await response.aread()
                outcome.error = f"HTTP {response.status_code}: {response.text[:200]}"
            else:
                async for data in sse_data(response.aiter_bytes()):
                    done = done or data == "[DONE]"
                    if data != "[DONE]":
                        outcome.note(json.loads(data), clock())
                if not done:
                    outcome.error = outcome.error or "the stream ended without [DONE]"
    except httpx.HTTPError as error:
        outcome.error = f"{type(error).__name__}: {error}"
    except ValueError as error:
        outcome.error = f"bad JSON in the stream: {error}"
    outcome.ended = clock()
    outcome.output_tokens = outcome.output_tokens or len(outcome.pieces)  # servers without usage
    return outcome


async def run_load(
    client: httpx.AsyncClient, workload: Workload, model: str, *, clock: Callable[[], float] = time.perf_counter
) -> list[Outcome]:
    """All requests of the workload, `clients` at a time, in the order in which they ended."""
    numbers = iter(range(workload.requests))
    outcomes: list[Outcome] = []

    async def one_client() -> None:
        for number in numbers:
            outcomes.append(await run_request(client, workload.path, workload.body(number, model), clock))

    await asyncio.gather(*(one_client() for _ in range(workload.clients)))
    return outcomes


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that at least `percent` of all values do not exceed (nearest rank); None of no values."""
    if not values:
        return None
    return sorted(values)[max(math.ceil(percent / 100 * len(values)), 1) - 1]


def spread_ms(seconds: Sequence[float]) -> dict[str, float | None]:
    """Median, 99th percentile and maximum, in milliseconds."""
    points = {"p50": percentile(seconds, 50), "p99": percentile(seconds, 99), "max": percentile(seconds, 100)}
    return {name: None if value is None else round(1000 * value, 2) for name, value in points.items()}


def summarise(outcomes: Sequence[Outcome], workload: Workload) -> dict[str, Any]:
    """The figures of a run. Rates and times are those of the requests that succeeded, rates over the whole run."""
    good = [each for each in outcomes if each.error is None]
    seconds = max(max(each.ended for each in outcomes) - min(each.started for each in outcomes), 1e-9)
    gaps = [later - earlier for each in good for earlier, later in zip(each.pieces, each.pieces[1:], strict=False)]
    kinds = Counter(each.error for each in outcomes if each.error is not None)
    input_tokens = sum(each.input_tokens for each in good)
    output_tokens = sum(each.output_tokens for each in good)
    return {
        "benchmark": "load",
        "clients": workload.clients,
        "requests": len(outcomes),
        "errors": len(outcomes) - len(good),
        "error_kinds": dict(kinds.most_common(5)),
        "seconds": round(seconds, 3),
        "input_tokens": input_tokens,
        "cached_tokens": sum(each.cached_tokens for each in good),
        "output_tokens": output_tokens,
        "requests_per_second": round(len(good) / seconds, 3),
        "input_tokens_per_second": round(input_tokens / seconds, 1),
        "output_tokens_per_second": round(output_tokens / seconds, 1),
        "time_to_first_token_ms": spread_ms([each.pieces[0] - each.started for each in good if each.pieces]),
        "inter_token_ms": spread_ms(gaps),
        "request_ms": spread_ms([each.ended - each.started for each in good]),
    }


def show(figures: dict[str, Any], console: Console) -> None:
    """The figures as a table."""
    table = Table(title=f"{figures['requests']} requests, {figures['clients']} clients, {figures['seconds']} s")
    for column in ("", "p50", "p99", "max"):
        table.add_column(column, justify="left" if not column else "right")
    for name in ("time_to_first_token_ms", "inter_token_ms", "request_ms"):
        cells = ("-" if value is None else f"{value:,.1f}" for value in figures[name].values())
        table.add_row(name.removesuffix("_ms").replace("_", " ") + " (ms)", *cells)
    console.print(table)
    console.print(
        f"output {figures['output_tokens_per_second']:,} tokens/s, "
        f"input {figures['input_tokens_per_second']:,} tokens/s "
        f"({figures['cached_tokens']:,} of {figures['input_tokens']:,} from the cache), {figures['errors']} errors"
    )
    for error, times in figures["error_kinds"].items():
        console.print(f"  {times} x {error}", markup=False)


async def served_model(client: httpx.AsyncClient) -> str:
    """The first model that the server lists."""
    response = (await client.get("/v1/models")).raise_for_status()
    return str(response.json()["data"][0]["id"])


async def measure(base_url: str, workload: Workload, *, warmup: int, model: str, api_key: str, timeout_s: float) -> Any:
    """Warm up, run the workload, sum up."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=timeout_s, limits=limits) as client:
        model = model or await served_model(client)
        for number in range(warmup):
            await run_request(client, workload.path, workload.body(-1 - number, model), time.perf_counter)
        outcomes = await run_load(client, workload, model)
    return {**summarise(outcomes, workload), "model": model}


def main(
    base_url: Annotated[str, typer.Option(help="without /v1")] = "http://127.0.0.1:8000",
    clients: Annotated[int, typer.Option(min=1)] = 16,
    requests: Annotated[int, typer.Option(min=0, help="in all; 0: four per client")] = 0,
    input_tokens: Annotated[int, typer.Option(min=1, help="words of the prompt")] = 128,
    output_tokens: Annotated[int, typer.Option(min=1, help="max_tokens")] = 128,
    shared_prefix_tokens: Annotated[int, typer.Option(min=0, help="words that all prompts begin with")] = 0,
    endpoint: Annotated[str, typer.Option(help="completions or chat")] = "completions",
    temperature: float = 0.0,
    ignore_eos: Annotated[bool, typer.Option(help="ask for full-length answers, which not every server knows")] = True,
    warmup: Annotated[int, typer.Option(min=0, help="requests before the measurement")] = 2,
    model: Annotated[str, typer.Option(help="default: the first that is served")] = "",
    api_key: Annotated[str, typer.Option(envvar="OPENAI_API_KEY")] = "",
    timeout_s: Annotated[float, typer.Option(help="longest wait for a piece of an answer")] = 600.0,
    seed: int = 0,
) -> None:
    """Closed-loop streaming load on an OpenAI-compatible server."""
    if endpoint not in ("completions", "chat"):
        raise typer.BadParameter("completions or chat", param_hint="--endpoint")
    workload = Workload(
        clients=clients,
        requests=requests or 4 * clients,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        shared_prefix_tokens=shared_prefix_tokens,
        endpoint="chat" if endpoint == "chat" else "completions",
        temperature=temperature,
        ignore_eos=ignore_eos,
        seed=seed,
    )
    figures = asyncio.run(measure(base_url, workload, warmup=warmup, model=model, api_key=api_key, timeout_s=timeout_s))
    show(figures, Console())
    print(json.dumps(figures))
    raise typer.Exit(1 if figures["errors"] else 0)


if __name__ == "__main__":
    typer.run(main)
