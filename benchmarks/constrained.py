"""What constraints cost: the step of a batch whose answers follow a schema against that of the same batch without.

    python benchmarks/constrained.py model.gguf --sequences 8 --new 64 --rounds 4

Runs the engine in this process, batches with and without by turns, greedy and sampled. Also what the first constraint
costs (the vocabulary, once per engine) and what each further one does (its grammar). A table, then one JSON object on
the last line of stdout.
"""

import json
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from model.sampling_params import SamplingParams
from server.config import EngineConfig
from server.engine.compose import compose
from server.engine.engine import Engine
from server.engine.request import Constraint, Request

MIB = 2**20


def schema(number: int) -> dict[str, Any]:
    """Lists of records that go on for long; no two are equal."""
    record = {
        "id": {"type": "integer", "minimum": 0, "maximum": 99999},
        "name": {"type": "string", "minLength": 3, "maxLength": 40},
        "kind": {"enum": [f"kind {number}", "other", "none"]},
        "price": {"type": "number", "minimum": 0, "maximum": 1000},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{2,9}$"}, "minItems": 1, "maxItems": 4},
    }
    item = {"type": "object", "properties": record, "required": list(record), "additionalProperties": False}
    return {"type": "array", "items": item, "minItems": 50}


class Bench:
    """An engine, and a way to time its steps."""

    def __init__(self, model: str, *, threads: int, kv_mib: int) -> None:
        config = EngineConfig(model, threads=threads, kv_cache_bytes=kv_mib * MIB, prefix_cache=False)
        self.engine: Engine
        self.engine, self.ready_ = compose(config, lambda what, fraction: None)
        self._woken = threading.Event()
        self.engine.on_ready(self._woken.set)
        self._numbers = count()

    def requests(self, sequences: int, new: int, temperature: float, *, bound: bool) -> Iterator[Request]:
        """The same prompts and seeds, bound or free."""
        for number in range(sequences):
            constraint = Constraint("json_schema", json.dumps(schema(number))) if bound else None
            params = SamplingParams(temperature, top_p=0.95, seed=number)
            prompt = tuple((7 * number + 13 * place) % 1000 + 300 for place in range(64))
            yield Request(f"{next(self._numbers)}", prompt, new + 80, params, constraint=constraint)

    def wait_compiled(self) -> float:
        """Seconds until the engine has work."""
        began = time.perf_counter()
        while not self.engine.has_work:
            self._woken.wait(60)
            self._woken.clear()
        return time.perf_counter() - began

    def steps_ms(self, requests: Sequence[Request], new: int) -> list[float]:
        """Milliseconds of each of `new` steps in which all of them decode."""
        self.engine.submit(requests)
        found: list[float] = []
        while len(found) < new:
            self.wait_compiled()
            began = time.perf_counter()
            outcome = self.engine.step()
            seconds = time.perf_counter() - began
            assert not any(event.error for event in outcome.events), outcome.events
            if outcome.stats.decode_tokens == len(requests):
                found.append(1000 * seconds)
        self.engine.cancel([request.id for request in requests])
        self.engine.step()
        return found


def main(
    model: Annotated[str, typer.Argument()],
    sequences: Annotated[int, typer.Option()] = 8,
    new: Annotated[int, typer.Option()] = 64,
    rounds: Annotated[int, typer.Option()] = 4,
    threads: Annotated[int, typer.Option()] = 2,
    kv_mib: Annotated[int, typer.Option()] = 256,
) -> None:
    """See the module's docstring."""
    bench = Bench(model, threads=threads, kv_mib=kv_mib)
    result: dict[str, Any] = {"model": Path(model).name, "sequences": sequences, "steps": new * rounds}
    for name in ("first_constraint_ms", "next_constraint_ms"):
        (request,) = bench.requests(1, new, 0.0, bound=True)
        source = json.dumps(schema(1000 + len(result)))
        bench.engine.submit(
            [Request(request.id, request.prompt, 1, request.params, constraint=Constraint("json_schema", source))]
        )
        result[name] = round(1000 * bench.wait_compiled(), 1)
        while bench.engine.has_work:
            bench.engine.step()
    for label, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(rounds):
            for bound in (False, True):
                times[bound] += bench.steps_ms([*bench.requests(sequences, new, temperature, bound=bound)], new)
        free, bound_ms = statistics.median(times[False]), statistics.median(times[True])
        result[label] = {"free_ms": round(free, 3), "bound_ms": round(bound_ms, 3), "ratio": round(bound_ms / free, 3)}
        worst = statistics.quantiles(times[True], n=20)[-1] / statistics.quantiles(times[False], n=20)[-1]
        result[label]["ratio_of_the_95th_percentiles"] = round(worst, 3)
        print(f"{label:8} free {free:7.2f} ms   bound {bound_ms:7.2f} ms   ratio {bound_ms / free:.3f}")
    print(json.dumps(result))


if __name__ == "__main__":
    typer.run(main)
