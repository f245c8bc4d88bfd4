"""How good kvell's numbers are: perplexity against llama-perplexity or transformers, and first tokens of many prompts.

    python -m benchmarks.perplexity MODEL.gguf --llama build/peers/llama.cpp/bin
    python -m benchmarks.perplexity HF_FOLDER --reference
    python -m benchmarks.perplexity MODEL.gguf --reference --prompts

Run it from the repository's root. --llama: the tool on the same file. --reference: transformers in float32 on the same
weights. --prompts: of twenty prompts, how far the first token's log-probability is from the reference's, and how long
greedy answers agree. One JSON object on the last line; exit code 1 if a limit (0.5 % of perplexity, 0.15 of
log-probability) is passed.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import track

from benchmarks.peer.llama import Llama
from benchmarks.peer.models import Ours, open_ours, open_reference, reference_logits
from benchmarks.peer.prompts import PROMPTS
from benchmarks.peer.scoring import TEXT, Logits, Score, losses, read_text, score, windows

ALLOWED = 0.005  # of perplexity
ALLOWED_LOGPROB = 0.15
GREEDY_TOKENS = 32


def measure(name: str, logits: Logits, pieces: Sequence[list[int]], console: Console) -> Score:
    """Perplexity over the windows."""
    began = time.perf_counter()
    found = score([losses(piece, logits) for piece in track(pieces, name, console=console, transient=True)])
    console.print(
        f"{name:16} {found.perplexity:8.4f} +/- {found.error:.4f} over {found.count:,} tokens, "
        f"{time.perf_counter() - began:.0f} s"
    )
    return found


def ask_llama(folder: Path, model: Path, text: str, *, window: int, count: int, threads: int) -> float:
    """llama-perplexity on the same text."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "text"
        path.write_text(text, encoding="utf-8")
        return Llama(folder, threads).perplexity(model, path, window=window, windows=count)


def greedy(logits: Logits, prompt: Sequence[int], count: int) -> tuple[list[int], float]:
    """The most likely tokens, each after all before it, and the log-probability of the first. Ties: the lower id."""
    tokens, first = list(prompt), 0.0
    for number in range(count):
        row = logits(tokens, 1)[0].float()
        tokens.append(int(row.argmax()))
        if not number:
            first = torch.log_softmax(row, 0)[tokens[-1]].item()
    return tokens[len(prompt) :], first


def compare_prompts(ours: Ours, reference: Logits, texts: Sequence[str], count: int) -> Iterator[dict[str, Any]]:
    """Per prompt: our first token, how far its log-probability is from the reference's, how many tokens agree."""
    for text in texts:
        prompt = ours.tokenizer.encode(text, add_bos=True)
        mine, logprob = greedy(ours.logits, prompt, count)
        theirs, _ = greedy(reference, prompt, count)
        expected = torch.log_softmax(reference(prompt, 1)[0].float(), 0)[mine[0]].item()
        agreed = next((i for i, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1]), count)
        yield {"first": mine[0], "logprob": logprob, "difference": abs(logprob - expected), "agreed": agreed}


def summarise(found: Sequence[dict[str, Any]], count: int) -> dict[str, Any]:
    """Over all prompts."""
    return {
        "prompts": len(found),
        "largest_difference": round(max(each["difference"] for each in found), 4),
        "same_first_token": sum(each["agreed"] > 0 for each in found),
        "same_answer": sum(each["agreed"] == count for each in found),
        "tokens_agreed": round(sum(each["agreed"] for each in found) / len(found), 1),
        "of_tokens": count,
    }


def main(
    model: Annotated[Path, typer.Argument(help="A .gguf file or a directory.", exists=True)],
    llama: Annotated[Path | None, typer.Option(help="Folder with llama-perplexity.")] = None,
    reference: Annotated[bool, typer.Option("--reference", help="Compare with transformers in float32.")] = False,
    prompts: Annotated[bool, typer.Option("--prompts", help="Compare answers with transformers, too.")] = False,
    text: Annotated[Path, typer.Option(help="A text file, or one packed by xz.")] = TEXT,
    window: Annotated[int, typer.Option(min=4, help="Tokens of a window.")] = 512,
    count: Annotated[int, typer.Option("--windows", min=0, help="At most so many windows; 0: no perplexity.")] = 40,
    backend: Annotated[str, typer.Option(help="auto, native or torch.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="Threads of everybody.")] = 2,
) -> None:
    """Measure, compare, and say what passed a limit."""
    console = Console(stderr=True)
    torch.set_num_threads(threads)
    ours = open_ours(model.resolve(), window=window, threads=threads, backend=backend)
    prose = read_text(text)
    figures: dict[str, Any] = {"benchmark": "perplexity", "model": model.name, "backend": ours.backend}
    theirs: dict[str, float] = {}
    other = reference_logits(open_reference(model.resolve())) if reference or prompts else None
    if count:
        pieces = list(windows(ours.tokenizer.encode(prose, add_bos=True), size=window, bos=ours.bos, most=count))
        figures["kvell"] = asdict(measure("kvell", ours.logits, pieces, console))
        if reference and other:
            theirs["transformers"] = measure("transformers", other, pieces, console).perplexity
        if llama:
            theirs["llama.cpp"] = ask_llama(llama, model, prose, window=window, count=len(pieces), threads=threads)
            console.print(f"{'llama.cpp':16} {theirs['llama.cpp']:8.4f}")
    figures["theirs"] = theirs
    figures["excess"] = {name: round(figures["kvell"]["perplexity"] / value - 1, 5) for name, value in theirs.items()}
    if prompts and other:
        found = list(compare_prompts(ours, other, PROMPTS, GREEDY_TOKENS))
        figures["prompts"] = summarise(found, GREEDY_TOKENS)
        console.print(figures["prompts"])
    print(json.dumps(figures))
    too_far = prompts and figures["prompts"]["largest_difference"] > ALLOWED_LOGPROB
    raise typer.Exit(1 if too_far or any(abs(value) > ALLOWED for value in figures["excess"].values()) else 0)


if __name__ == "__main__":
    typer.run(main)
