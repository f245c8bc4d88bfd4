"""kvell's engine in this process, with the server's own settings: one measurement, then a line of JSON. No HTTP.

    python -m benchmarks.peer.ours decode MODEL --sequences 16 --prompt 128 --new 64
    python -m benchmarks.peer.ours prompt MODEL --tokens 512
    python -m benchmarks.peer.ours arrivals MODEL --clients 16 --input-tokens 128 --output-tokens 128

Choosing the tokens is part of it. decode: from the moment when every sequence has its first token. prompt: from handing
it in to its first token. arrivals: the requests of `kvell bench serve` with the same seed, all at once, from handing
them in to the last token.
"""

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from model.checkpoint.source import open_checkpoint
from model.families.registry import to_model_config
from model.sampling_params import SamplingParams
from model.tokenizer.open import open_tokenizer
from server.bench.figures import percentile
from server.bench.workload import Lengths, Workload
from server.config import EngineConfig
from server.engine.compose import compose
from server.engine.engine import Engine
from server.engine.request import Request

GREEDY = SamplingParams(temperature=0.0)
MIB = 2**20
app = typer.Typer(add_completion=False)
Model = Annotated[Path, typer.Argument(help="A .gguf file or a directory.")]
Threads = Annotated[int | None, typer.Option(help="Threads; by default one per core.")]


def open_engine(model: Path, threads: int | None, *, prefix_cache: bool = False) -> Engine:
    """The engine as the server composes it; without prefix cache, so that a repeat is no cheaper than the first."""
    config = EngineConfig(str(model), threads=threads, prefix_cache=prefix_cache, kv_cache_bytes=2048 * MIB)
    return compose(config, lambda what, fraction: None)[0]


def prompts(model: Path, count: int, length: int) -> list[tuple[int, ...]]:
    """Random tokens, the same in every process."""
    vocab_size = to_model_config(open_checkpoint(model).config).vocab_size
    chance = random.Random(f"{count} {length}")
    return [tuple(chance.randrange(vocab_size) for _ in range(length)) for _ in range(count)]


def decode_rate(engine: Engine, texts: Sequence[tuple[int, ...]], new: int) -> float:
    """Tokens per second of `new` steps in which all sequences get a token."""
    length = new + 1 + sum(map(len, texts))  # nobody ends while others are still on their prompts
    engine.submit([Request(f"decode-{i}", text, length, GREEDY) for i, text in enumerate(texts)])
    started: set[str] = set()
    while len(started) < len(texts):
        started |= {event.request_id for event in engine.step().events if event.tokens}
    began = time.perf_counter()
    for _ in range(new):
        assert engine.step().stats.decode_tokens == len(texts)
    seconds = time.perf_counter() - began
    engine.cancel([f"decode-{i}" for i in range(len(texts))])
    engine.step()
    return new * len(texts) / seconds


def first_token_seconds(engine: Engine, text: tuple[int, ...]) -> float:
    """From handing the prompt in to its first token."""
    began = time.perf_counter()
    engine.submit([Request("prompt", text, 1, GREEDY)])
    while engine.has_work:
        engine.step()
    return time.perf_counter() - began


def run_all(engine: Engine, requests: Sequence[Request]) -> tuple[float, dict[str, float]]:
    """Seconds until the last one ended, and until each had its first token."""
    firsts: dict[str, float] = {}
    began = time.perf_counter()
    engine.submit(requests)
    while engine.has_work:
        for event in engine.step().events:
            if event.tokens:
                firsts.setdefault(event.request_id, time.perf_counter() - began)
    return time.perf_counter() - began, firsts


@app.command()
def decode(model: Model, sequences: int = 1, prompt: int = 1, new: int = 128, threads: Threads = None) -> None:
    """Tokens per second of many sequences together."""
    texts = prompts(model, sequences, prompt)
    engine = open_engine(model, threads)
    decode_rate(engine, [text[:8] for text in texts], 4)
    print(json.dumps({"tok_s": decode_rate(engine, texts, new)}))


@app.command()
def prompt(model: Model, tokens: int = 512, threads: Threads = None) -> None:
    """Prompt tokens per second."""
    (text, other) = prompts(model, 2, tokens)
    engine = open_engine(model, threads)
    first_token_seconds(engine, other)
    print(json.dumps({"tok_s": tokens / first_token_seconds(engine, text)}))


@app.command()
def arrivals(
    model: Model,
    clients: int = 16,
    input_tokens: int = 128,
    output_tokens: int = 128,
    shared_prefix_tokens: int = 0,
    seed: int = 0,
    threads: Threads = None,
) -> None:
    """Output tokens per second of one burst of requests."""
    tokenizer = open_tokenizer(open_checkpoint(model))
    prompt, answer = Lengths(input_tokens, input_tokens), Lengths(output_tokens, output_tokens)
    workload = Workload(prompt, answer, shared_prefix_tokens, seed=seed)
    texts = [tuple(tokenizer.encode(workload.text(number), add_bos=True)) for number in range(clients)]
    engine = open_engine(model, threads, prefix_cache=True)
    run_all(engine, [Request(f"warm-{i}", text[:9], 4, GREEDY) for i, text in enumerate(texts)])
    seconds, firsts = run_all(engine, [Request(str(i), text, output_tokens, GREEDY) for i, text in enumerate(texts)])
    figures = {"tok_s": clients * output_tokens / seconds, "first_token_s": percentile(list(firsts.values()), 50)}
    print(json.dumps(figures))


if __name__ == "__main__":
    app()
