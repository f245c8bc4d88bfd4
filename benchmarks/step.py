"""What a step costs and who spends it: native kernels, sampler, interpreter; and tokens per second, without a server.

    python benchmarks/step.py model.gguf --sequences 1,8,16,32 --prompt 128 --new 64

Runs the engine in this process: for each number of sequences, all prompts together, then steps in which every sequence
gets a token. A table, then one JSON object on the last line of stdout. With --operations also the time of each kind of
native section, added up over a step.
"""

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from model.batch import Chunk
from model.checkpoint.source import open_checkpoint
from model.families.registry import to_model_config
from model.native_runner import NativeRunner
from model.sampling import Sampled, SamplingRow
from model.sampling_params import SamplingParams
from model.scores import Scores
from server.config import EngineConfig
from server.engine.compose import compose
from server.engine.engine import Engine
from server.engine.request import Request

MIB = 2**20


@dataclass
class Watch:
    """Seconds that calls of one function took since the last `take`."""

    seconds: float = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*args: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **named)
            finally:
                self.seconds += time.perf_counter() - began

        return timed

    def take(self) -> float:
        """What came together; begins anew."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class TimedRunner:
    """A runner, and how long it took; of a native one also how long its call took, and its sections."""

    def __init__(self, runner: Any) -> None:
        self.whole, self.native = Watch(), Watch()
        self.sections: dict[str, float] = {}
        self._run = self.whole.wrap(runner.run)
        self._runner = runner
        self._sums = np.zeros(len(runner.sections)) if isinstance(runner, NativeRunner) else None
        if isinstance(runner, NativeRunner):
            runner.call = self.native.wrap(runner.call)  # type: ignore[method-assign]

    def run(self, chunks: Sequence[Chunk]) -> Scores:
        """As the runner."""
        scores: Scores = self._run(chunks) if self._sums is None else self._run(chunks, seconds=self._sums)
        return scores

    def operations(self) -> dict[str, float]:
        """Seconds by kind of section since the last call."""
        if self._sums is None:
            return {}
        found: Counter[str] = Counter()
        for section, seconds in zip(self._runner.sections, self._sums, strict=True):
            found[section.name] += seconds
        self._sums[:] = 0.0
        return dict(found.most_common())


class TimedSampler:
    """A sampler, and how long it took."""

    def __init__(self, sampler: Any) -> None:
        self.watch = Watch()
        self._choose = self.watch.wrap(sampler.choose)

    def choose(self, scores: Scores, rows: Sequence[SamplingRow]) -> list[Sampled]:
        """As the sampler."""
        result: list[Sampled] = self._choose(scores, rows)
        return result


@dataclass
class Result:
    """Medians over steps in which all sequences decode. interpreter: what is neither native nor sampler."""

    sequences: int
    steps: int
    step_ms: float
    native_ms: float
    sampler_ms: float
    packing_ms: float
    interpreter_ms: float
    tokens_per_s: float
    prompt_tokens_per_s: float
    operations_ms: dict[str, float] = field(default_factory=dict)


def measure(
    engine: Engine,
    runner: TimedRunner,
    sampler: TimedSampler,
    *,
    count: int,
    prompt: int,
    new: int,
    vocab_size: int,
    params: SamplingParams,
) -> Result:
    """All prompts, then `new` tokens for each of `count` sequences."""
    texts = [tuple((7 * i + 13 * j) % vocab_size for j in range(prompt)) for i in range(count)]
    requests = [
        Request(f"{count}-{i}", text, new + count * prompt, replace(params, seed=i)) for i, text in enumerate(texts)
    ]
    engine.submit(requests)
    began, fed = time.perf_counter(), 0
    while fed < count * prompt:
        fed += engine.step().stats.prompt_tokens
    prompt_seconds = time.perf_counter() - began
    engine.step()
    for watch in (runner.whole, runner.native, sampler.watch):
        watch.take()
    runner.operations()
    rows = []
    for _ in range(new):
        began = time.perf_counter()
        assert engine.step().stats.decode_tokens == count
        whole = time.perf_counter() - began
        rows.append((whole, runner.native.take(), sampler.watch.take(), runner.whole.take()))
    engine.cancel([request.id for request in requests])
    step, native, sampling, _ = (1000 * statistics.median(column) for column in zip(*rows, strict=True))
    return Result(
        count,
        len(rows),
        step,
        native,
        sampling,
        statistics.median(1000 * (row[3] - row[1]) for row in rows),
        statistics.median(1000 * (row[0] - row[1] - row[2]) for row in rows),
        1000 * count / step,
        count * prompt / prompt_seconds,
        {name: 1000 * seconds / len(rows) for name, seconds in runner.operations().items()},
    )


def main(
    model: Annotated[Path, typer.Argument(help="A .gguf file or a directory.")],
    sequences: Annotated[str, typer.Option(help="Numbers of sequences, separated by commas.")] = "1,8,16,32",
    prompt: Annotated[int, typer.Option(help="Tokens of each prompt.")] = 128,
    new: Annotated[int, typer.Option(help="Steps to measure.")] = 64,
    backend: Annotated[str, typer.Option(help="auto, native or torch.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="Threads; by default one per core.")] = None,
    cache_mib: Annotated[int, typer.Option(help="Memory of the KV cache.")] = 1024,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    operations: Annotated[bool, typer.Option(help="Also show what kinds of sections took.")] = False,
) -> None:
    """Measure and print."""
    config = EngineConfig(
        str(model), backend=backend, threads=threads, kv_cache_bytes=cache_mib * MIB, prefix_cache=False
    )  # type: ignore[arg-type]
    vocab_size = to_model_config(open_checkpoint(model).config).vocab_size
    engine, ready = compose(config, lambda what, fraction: None)
    runner, sampler = TimedRunner(engine._runner), TimedSampler(engine._sampler)
    engine._runner, engine._sampler = runner, sampler
    print(f"{ready.backend} {ready.kernels}, {ready.threads} threads, cache {ready.kv_cache_dtype}")
    print("sequences   step ms  native  sampler  packing  interpreter   tok/s  prompt tok/s")
    results = []
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    for count in map(int, sequences.split(",")):
        result = measure(
            engine, runner, sampler, count=count, prompt=prompt, new=new, vocab_size=vocab_size, params=params
        )
        results.append(result)
        print(
            f"{count:9}  {result.step_ms:8.2f}  {result.native_ms:6.2f}  {result.sampler_ms:7.2f}  "
            f"{result.packing_ms:7.3f}  {result.interpreter_ms:11.3f}  {result.tokens_per_s:6.0f}  "
            f"{result.prompt_tokens_per_s:12.0f}"
        )
        if operations:
            for name, milliseconds in result.operations_ms.items():
                print(f"    {milliseconds:8.3f} ms  {name}")
    print(
        json.dumps({"backend": ready.backend, "kernels": ready.kernels, "results": [asdict(each) for each in results]})
    )


if __name__ == "__main__":
    typer.run(main)
