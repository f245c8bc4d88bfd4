"""llama.cpp's own tools: how they are called, and what is read from their output.

llama-bench and llama-batched-bench count no sampling and no text; nothing is added to make up for that.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer.contests import MeasureFailed
from benchmarks.peer.processes import output_of


@dataclass(frozen=True, slots=True)
class Llama:
    """The tools of one build, with a number of threads."""

    bin: Path
    threads: int

    @property
    def installed(self) -> bool:
        """Whether the benchmarks are built."""
        return (self.bin / "llama-batched-bench").exists()

    @property
    def serves(self) -> bool:
        """Whether the server is built."""
        return (self.bin / "llama-server").exists()

    def decode(self, model: Path, *, tokens: int, flash: bool) -> dict[str, float]:
        """One sequence from an empty context: llama-bench's tg test."""
        return self._bench(model, "-p", "0", "-n", str(tokens), flash=flash)

    def prompt(self, model: Path, *, tokens: int, flash: bool) -> dict[str, float]:
        """A prompt of so many tokens: llama-bench's pp test, after its own warm-up."""
        return self._bench(model, "-p", str(tokens), "-n", "0", flash=flash)

    def _bench(self, model: Path, *test: str, flash: bool) -> dict[str, float]:
        shared = ["-m", str(model), "-t", str(self.threads), "-r", "1", "-fa", str(int(flash)), "-o", "json"]
        return parse_bench(output_of([str(self.bin / "llama-bench"), *shared, *test]))

    def batch(self, model: Path, *, sequences: int, prompt: int, new: int, flash: bool) -> dict[str, float]:
        """Many sequences, each with a prompt of its own: llama-batched-bench."""
        sizes = ["-npp", str(prompt), "-ntg", str(new), "-npl", str(sequences), "-c", str(sequences * (prompt + new))]
        threads = ["-t", str(self.threads), "-tb", str(self.threads)]
        program = [str(self.bin / "llama-batched-bench"), "-m", str(model), *sizes, *threads]
        return parse_batched(output_of([*program, *flash_flag(flash), "--output-format", "jsonl"]))

    def server(self, model: Path, port: int, *, slots: int, context: int, flash: bool) -> list[str]:
        """The command of a server in which each slot has `context` tokens."""
        return [
            *(str(self.bin / "llama-server"), "-m", str(model), "--host", "127.0.0.1", "--port", str(port)),
            *("-np", str(slots), "-c", str(slots * context), "-t", str(self.threads), "-tb", str(self.threads)),
            *flash_flag(flash),
        ]

    def perplexity(self, model: Path, text: Path, *, window: int, windows: int) -> float:
        """What llama-perplexity says of the first so many windows."""
        sizes = ["-c", str(window), "-b", str(window), "--chunks", str(windows), "-t", str(self.threads)]
        command = [str(self.bin / "llama-perplexity"), "-m", str(model), "-f", str(text), *sizes]
        return parse_perplexity(output_of(command, errors_too=True))


def flash_flag(flash: bool) -> Sequence[str]:
    """Of all tools but llama-bench."""
    return ("-fa", "on" if flash else "off")


def parse_bench(output: str) -> dict[str, float]:
    """Tokens per second of the only test. Raises MeasureFailed for anything else."""
    try:
        (test,) = json.loads(output)
        return {"tok_s": float(test["avg_ts"])}
    except (ValueError, KeyError, TypeError) as error:
        raise MeasureFailed(f"unexpected output of llama-bench: {output[-200:]}") from error


def parse_batched(output: str) -> dict[str, float]:
    """Tokens per second of decoding and of the prompts, of the only line of JSON. Raises MeasureFailed."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    try:
        (line,) = lines
        test = json.loads(line)
        return {"tok_s": float(test["speed_tg"]), "prompt_tok_s": float(test["speed_pp"])}
    except (ValueError, KeyError) as error:
        raise MeasureFailed(f"unexpected output of llama-batched-bench: {output[-200:]}") from error


def parse_perplexity(output: str) -> float:
    """The final estimate. Raises MeasureFailed where there is none."""
    found = re.search(r"Final estimate: PPL = ([0-9.]+)", output)
    if not found:
        raise MeasureFailed(f"no estimate from llama-perplexity: {output[-200:]}")
    return float(found[1])
