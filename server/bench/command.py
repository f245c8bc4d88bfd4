"""`kvell bench serve`: from flags to a load, and from what came of it to a table, a picture and a line of JSON.

Composes the room. Knows the public API only, so that it measures any server that speaks OpenAI's.
"""

import asyncio
import importlib
import importlib.util
import json
import math
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import uvloop
from rich.console import Console

from server.bench.client import Client
from server.bench.figures import Target, summarise
from server.bench.http import Address, HTTPFailed, Pool
from server.bench.load import Run, Shape, run_load
from server.bench.outcome import Outcome
from server.bench.show import follow, show
from server.bench.workload import Endpoint, Lengths, Workload

app = typer.Typer(help="Measure a server by load.", no_args_is_help=True, rich_markup_mode=None)

DEFAULT_SECONDS = 30.0
ENDPOINTS: dict[str, Endpoint] = {"completions": "completions", "chat": "chat"}
STOPS_ONLY_AT_LENGTH = frozenset(("kvell", "llamacpp", "vllm"))  # owners of models whose servers know ignore_eos


class BenchFailed(Exception):
    """The server can't be measured. One line."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that `kvell bench serve` was asked for. model "": the first that the server lists."""

    url: str
    api_key: str
    model: str
    workload: Workload
    shape: Shape
    targets: tuple[Target, ...]
    timeout_s: float
    warmup: int = 0
    ignore_eos: bool | None = None  # None: where the server is known to understand it


async def measure(job: Job, console: Console) -> tuple[Run, dict[str, Any]]:
    """Warm up, run the load, sum up. Raises BenchFailed where the server does not even list its models."""
    headers = [("authorization", f"Bearer {job.api_key}")] if job.api_key else []
    pool = Pool(Address.parse(job.url), headers)
    model, owner = await served_model(pool, job.url)
    forced = owner in STOPS_ONLY_AT_LENGTH if job.ignore_eos is None else job.ignore_eos
    workload = replace(job.workload, ignore_eos=forced)
    client = Client(pool, workload, job.model or model, timeout_s=job.timeout_s, clock=time.perf_counter)
    for number in range(job.warmup):
        await client.ask(Outcome(-1 - number, due=time.perf_counter()))
    client.tally.kinds.clear()
    watching = asyncio.create_task(follow(client.tally, console))
    worked = time.process_time()
    run = await run_load(job.shape, client.ask, time.perf_counter)
    worked = time.process_time() - worked
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    pool.close()
    figures = summarise(run, job.targets)
    elapsed = max(figures["seconds"], 1e-9)
    return run, {**figures, **_asked(job, job.model or model), "client_cpu_share": round(worked / elapsed, 3)}


def _asked(job: Job, model: str) -> dict[str, Any]:
    """What the figures are of."""
    shape = job.shape
    rate = None if shape.rate is None else "inf" if math.isinf(shape.rate) else shape.rate
    return {"model": model, "rate": rate, "concurrency": shape.concurrency, "seed": shape.seed}


async def served_model(pool: Pool, url: str) -> tuple[str, str]:
    """The first model that the server lists, and who it says owns it. Raises BenchFailed."""
    try:
        connection = await pool.take()
        connection.send([pool.head("GET", "/v1/models", 0)])
        status = await connection.head()
        body = b"".join([part async for part in connection.body()])
        pool.give_back(connection)
        if status != 200:
            raise BenchFailed(
                f"GET /v1/models at {url} was answered with status {status}; is a key needed (--api-key)?"
            )
        first = json.loads(body)["data"][0]
        return str(first["id"]), str(first.get("owned_by", ""))
    except HTTPFailed as error:
        raise BenchFailed(f"no server answers at {url}: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BenchFailed(f"what answers at {url} lists no models, so it is no server of this kind") from None


def _wrong(flag: str, message: str) -> NoReturn:
    raise typer.BadParameter(message, param_hint=f"--{flag}")


def _lengths(flag: str, text: str) -> Lengths:
    try:
        return Lengths.parse(text)
    except ValueError:
        _wrong(flag, f"{text!r} is no length; one is a number of at least 1, or a range like 64-512")


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not rate > 0:
        _wrong("rate", f"{text!r} is no rate; one is a number of requests a second above 0, or inf")
    return rate


def _targets(text: str) -> tuple[Target, ...]:
    try:
        return tuple(map(Target.parse, text.replace(",", " ").split()))
    except ValueError as error:
        _wrong("goodput", str(error))


def _shape(
    rate: str | None, concurrency: int | None, num_requests: int | None, duration: float | None, **more: Any
) -> Shape:
    if (rate is None) == (concurrency is None):
        _wrong(
            "rate", "give --rate (arrivals whatever the server does) or --concurrency (so many clients), one of them"
        )
    if num_requests is not None and duration is not None:
        _wrong("duration", "give --duration or --num-requests, one of them")
    if rate is not None and math.isinf(_rate(rate)) and num_requests is None:
        _wrong("num-requests", "a burst (--rate inf) needs the number of its requests")
    if num_requests is None and duration is None:
        duration = DEFAULT_SECONDS
    return Shape(None if rate is None else _rate(rate), concurrency, num_requests, duration, **more)


def _endpoint(name: str) -> Endpoint:
    if name in ENDPOINTS:
        return ENDPOINTS[name]
    _wrong("endpoint", f"{name!r} is none; allowed: completions, chat")


def _address(url: str) -> str:
    try:
        Address.parse(url)
    except ValueError:
        _wrong("url", f"{url!r} is no address; one looks like http://127.0.0.1:8000")
    return url


def _report(job: Job, plot: Path | None) -> None:
    """Measure and show. Exit code 1 where the server can't be measured, or not one request succeeded."""
    try:
        run, figures = uvloop.run(measure(job, Console(stderr=True)))
        show(figures, Console())
        print(json.dumps(figures), flush=True)  # before the picture, so that one that fails costs no figures
        if plot is not None:
            title = f"{Path(figures['model']).name} at {job.url}: {describe(job.shape)}"
            importlib.import_module("server.bench.plot").draw(run, figures, job.targets, title, plot)
    except (BenchFailed, OSError, ValueError) as error:
        print(f"kvell: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(1) from None
    raise typer.Exit(0 if figures["outcomes"]["ok"] else 1)


def describe(shape: Shape) -> str:
    """The load in a few words."""
    if shape.concurrency is not None:
        return f"{shape.concurrency} clients, one request each at a time"
    assert shape.rate is not None
    return "all requests at once" if math.isinf(shape.rate) else f"{shape.rate:g} requests a second arrive"


@app.callback()
def _group() -> None:
    """A group, so that `kvell bench` can measure more than servers one day."""


@app.command()
def serve(
    url: Annotated[str, typer.Option(envvar="KVELL_URL", help="Where the server is.")] = "http://127.0.0.1:8000",
    api_key: Annotated[str, typer.Option(envvar="KVELL_API_KEY", help="Key, if the server needs one.")] = "",
    model: Annotated[str, typer.Option(help="Default: the first that the server lists.")] = "",
    rate: Annotated[
        str | None, typer.Option(help="Open loop: requests a second at random moments; inf: a burst.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Closed loop: clients, each one request at a time.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds in which requests begin. [default: 30]")
    ] = None,
    num_requests: Annotated[int | None, typer.Option(min=1, help="End after so many requests instead.")] = None,
    prompt_tokens: Annotated[str, typer.Option(help="Length of prompts, about a token a word: 128 or 64-512.")] = "128",
    output_tokens: Annotated[str, typer.Option(help="Length of answers (max_tokens): 64 or 16-256.")] = "64",
    shared_prefix: Annotated[int, typer.Option(min=0, help="Words that all prompts begin with.")] = 0,
    endpoint: Annotated[str, typer.Option(help="completions or chat.")] = "completions",
    temperature: Annotated[float, typer.Option(help="Of the sampling.")] = 0.0,
    ignore_eos: Annotated[
        bool | None, typer.Option(help="Ask for answers of full length. [default: where the server knows how]")
    ] = None,
    goodput: Annotated[
        str, typer.Option(help="Targets of a good answer in ms: 'ttft:2000 itl-p95:150 e2e:9000'.")
    ] = "",
    retry_after: Annotated[
        bool, typer.Option("--retry-after", help="Clients come back when a refusal tells them.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest time for a request, in seconds.")] = 600.0,
    warmup: Annotated[int, typer.Option(min=0, help="Requests before the measurement, one by one.")] = 2,
    seed: Annotated[int, typer.Option(help="Of prompts, lengths and arrivals.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Write a picture of the run (needs matplotlib).")] = None,
) -> None:
    """Load on any server with OpenAI's API. A table, then one JSON object on the last line of stdout."""
    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        _wrong("plot", "a picture needs matplotlib, which is not installed: pip install 'kvell[plot]'")
    if plot is not None and not plot.parent.is_dir():
        _wrong("plot", f"there is no folder {str(plot.parent)!r}")
    workload = Workload(
        _lengths("prompt-tokens", prompt_tokens),
        _lengths("output-tokens", output_tokens),
        shared_prefix,
        _endpoint(endpoint),
        temperature,
        seed=seed,
    )
    shape = _shape(rate, concurrency, num_requests, duration, come_back=retry_after, seed=seed)
    targets = _targets(goodput)
    job = Job(_address(url), api_key, model, workload, shape, targets, timeout, warmup, ignore_eos)
    _report(job, plot)
