"""A real model, loaded from one GGUF by transformers and by us, and what must be equal: logits and greedy words."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from model.checkpoint.source import open_checkpoint
from model.decoder import Decoder
from model.load import load_model
from model.tokenizer.open import open_tokenizer
from tests.helpers.paged import Paged
from tests.helpers.real_models import real_model
from tests.helpers.slim_gguf import write_slim

NUM_NEW = 64
EVERY = 8  # of the new tokens' logits, every eighth is compared: all of them would fill a gigabyte
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "1, 1, 2, 3, 5, 8, 13,",
    "Q: What is the boiling point of water?\nA:",
    "Il était une fois une petite fille qui",
    "Die Hauptstadt von Deutschland ist",
    "日本の首都は",
    "مرحبا، كيف",
    "SELECT name, age FROM users WHERE",
    "<html>\n<head>\n\t<title>",
    "To be, or not to be, that is the question:",
    "The three primary colours are red,",
    "Dear Sir or Madam,\n\nI am writing to",
    "🙂 🙂 🙂 👩‍👩‍👧 means",
    "import numpy as np\n\nx = np.array([",
    "Photosynthesis is the process by which",
    '{"name": "Alice", "age": 30, "city":',
    "x",
    "The quick brown fox jumps over the lazy dog. " * 60,  # longer than Gemma's window of 512
]


@dataclass(frozen=True)
class Real:
    """One GGUF, loaded twice, and the prompts as its tokenizer spells them."""

    original: Any
    decoder: Decoder
    prompts: list[list[int]]


@contextmanager
def both(name: str, directory: Path) -> Iterator[Real]:
    """The catalogue's model of this name, loaded twice."""
    path = real_model(name)
    checkpoint = open_checkpoint(path)
    tokenizer = open_tokenizer(checkpoint)
    slim = write_slim(path, directory / path.name)
    yield Real(
        _original(slim),
        load_model(checkpoint, device=torch.device("cpu"), dtype=torch.float32),
        [tokenizer.encode(prompt, add_bos=True) for prompt in PROMPTS],
    )
    slim.unlink()


def _original(path: Path) -> Any:
    cls = transformers.AutoModelForCausalLM
    return cls.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()


def _original_logits(original: Any, tokens: list[int], num_last: int) -> Tensor:
    with torch.no_grad():
        return original(torch.tensor([tokens]), logits_to_keep=num_last, use_cache=False).logits[0]


def _greedy(decoder: Decoder, prompts: list[list[int]]) -> tuple[list[list[int]], Tensor]:
    """What we say after each prompt, all at once: ids (B, NUM_NEW), and each eighth step's logits (B, 8, V)."""
    paged = Paged(decoder, num_blocks=2000, block_size=16)
    rows = [paged.runner.run([paged.chunk(str(i), prompt, num_logits=1)]).logits for i, prompt in enumerate(prompts)]
    steps = [torch.cat(rows)]
    said = [steps[0].argmax(-1).tolist()]
    for _ in range(NUM_NEW - 1):
        chunks = [paged.chunk(str(i), [token], num_logits=1) for i, token in enumerate(said[-1])]
        logits = paged.runner.run(chunks).logits
        said.append(logits.argmax(-1).tolist())
        if len(said) % EVERY == 1:
            steps.append(logits)
    return [list(ids) for ids in zip(*said, strict=True)], torch.stack(steps, dim=1)


def check_logits_and_greedy_words(real: Real, *, every: int = 1) -> None:
    """The original is fed our words: at every place it must want the same next one, unless its two best are level.

    every: 3 takes every third prompt, counted from the last, which is the longest.
    """
    prompts = real.prompts[::-every]
    said, logits = _greedy(real.decoder, prompts)
    num_level = 0
    for prompt, ids, ours in zip(prompts, said, logits, strict=True):
        theirs = _original_logits(real.original, prompt + ids[:-1], NUM_NEW)
        scale = theirs.abs().max()
        assert (ours - theirs[::EVERY]).abs().max() < 1e-3 * scale
        best = theirs.topk(2).values
        differs = theirs.argmax(-1) != torch.tensor(ids)
        assert (best[:, 0] - best[:, 1])[differs].le(1e-3 * scale).all(), "they differ where the original is sure"
        num_level += int(differs.sum())
    assert num_level <= 0.01 * NUM_NEW * len(prompts)


def check_a_long_prompt_in_pieces(real: Real) -> None:
    """All positions of a prompt that leaves Gemma's window, cut so that pieces end inside blocks and at their ends."""
    tokens = real.prompts[-1]
    assert len(tokens) > 512
    theirs = _original_logits(real.original, tokens, len(tokens))
    paged = Paged(real.decoder, num_blocks=500, block_size=16)
    ours = paged.logits(tokens, [16, 48, 1, 200, 7, 240, len(tokens) - 512])
    assert (ours - theirs).abs().max() < 1e-3 * theirs.abs().max()
