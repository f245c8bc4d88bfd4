"""Matrix products alone: all linear layers of a small model, by format and number of tokens, as shares of the ceilings.

    python benchmarks/gemm.py [--threads N] [--formats Q4_1,Q8_0,BF16] [--tokens 1,4,16,512] [--layers N]

The weights are random, in the shapes of SmolLM2-135M and different for each layer, so that one token reads them from
memory. Best of several runs; the ceilings are measured before and after. The last line of output is one JSON object.
"""

import argparse
import json
import os
import time
from collections.abc import Callable

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from benchmarks.ceilings import measure
from model.checkpoint.stored import Stored, row_bytes
from model.kernels.native import Team
from model.quant.arena import Arena
from model.quant.packed import PackedWeight

SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536))  # queries, keys and values; output; gate and up; down
FLOAT_RATE = ("BF16", "F16", "F32")


def layers(type_name: str, num_layers: int, team: Team) -> list[PackedWeight]:
    """Random bits, the top of every 16-bit float bent to a harmless exponent."""
    random, arena = np.random.default_rng(0), Arena()
    return [
        PackedWeight.stacked([_stored(type_name, rows, columns, random)], team, arena)
        for _ in range(num_layers)
        for rows, columns in SHAPES
    ]


def _stored(type_name: str, rows: int, columns: int, random: np.random.Generator) -> Stored:
    data = random.integers(0, 256, (rows, row_bytes(type_name, columns)), np.uint8)
    block = 2 if type_name in FLOAT_RATE else GGML_QUANT_SIZES[GGMLQuantizationType[type_name]][1]
    data.reshape(-1, block)[:, 1] = 0x24  # 2^-6 where a block begins with its scale
    return Stored(type_name, (rows, columns), data)


def best_seconds(work: Callable[[], object], clock: Callable[[], float], *, budget_s: float, most: int = 40) -> float:
    """The shortest of as many runs as fit the budget, at least three."""
    best, start = float("inf"), time.perf_counter()
    for number in range(most):
        before = clock()
        work()
        best = min(best, clock() - before)
        if number >= 2 and time.perf_counter() - start > budget_s:
            break
    return best


def run(weights: list[PackedWeight], num_tokens: int, clock: Callable[[], float], budget_s: float) -> float:
    """Seconds for every layer's products, quantising of activations included."""
    inputs = {columns: torch.randn(num_tokens, columns) for columns in {weight.shape[1] for weight in weights}}
    return best_seconds(lambda: [w.matmul(inputs[w.shape[1]]) for w in weights], clock, budget_s=budget_s)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the matrix products alone.")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--formats", default="Q4_1,Q8_0,BF16")
    parser.add_argument("--tokens", default="1,2,4,8,16,32,128,512")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--cpu-time", action="store_true", help="one thread's own time: for a machine that is busy")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds per line")
    asked = parser.parse_args()
    threads = 1 if asked.cpu_time else asked.threads
    clock = time.thread_time if asked.cpu_time else time.perf_counter
    team, before = Team(threads), measure(threads)
    rows = []
    for type_name in asked.formats.split(","):
        weights = layers(type_name, asked.layers, team)
        num_bytes, products = sum(w.num_bytes for w in weights), sum(w.shape[0] * w.shape[1] for w in weights)
        peak = before.fma_g if type_name in FLOAT_RATE else before.maddubs_add_g
        for num_tokens in (int(word) for word in asked.tokens.split(",")):
            seconds = run(weights, num_tokens, clock, asked.budget)
            read, multiplied = num_bytes / seconds / 1e9, num_tokens * products / seconds / 1e9
            rows.append(
                {"format": type_name, "tokens": num_tokens, "ms": seconds * 1e3, "gb_s": read, "gmac_s": multiplied}
            )
            print(
                f"{type_name:5} T {num_tokens:4} {seconds * 1e3:9.2f} ms"
                f"  {read:5.1f} GB/s ({read / before.read_gb:4.0%})"
                f"  {multiplied:6.1f} GMAC/s ({multiplied / (peak or float('nan')):4.0%})",
                flush=True,
            )
    after = measure(threads)
    print(f"ceilings before: {before}\nceilings after:  {after}")
    print(json.dumps({"isa": team.isa, "threads": threads, "read_gb_s": [before.read_gb, after.read_gb], "rows": rows}))


if __name__ == "__main__":
    main()
