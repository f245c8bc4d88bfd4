"""Logits of kvell's native backend and of transformers, in this process: for figures of quality, not of speed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from model.batch import Chunk
from model.checkpoint.source import open_checkpoint
from model.families.registry import to_model_config
from model.native_runner import NativeRunner
from model.runner import ModelRunner
from model.tokenizer.base import Tokenizer
from model.tokenizer.open import open_tokenizer
from server.config import EngineConfig
from server.engine.compose import choose_kinds, make_cache

BLOCK = 16


@dataclass(frozen=True, slots=True)
class Ours:
    """A model of kvell with an empty cache for one sequence of `window` tokens.

    backend is the one that computes. num_groups: KV groups, each of which gets the blocks 1 to window / 16.
    """

    runner: NativeRunner | ModelRunner
    tokenizer: Tokenizer
    backend: str
    num_groups: int
    window: int

    def logits(self, tokens: Sequence[int], wanted: int) -> Tensor:
        """(wanted, V) of the last positions; the cache holds nothing of before."""
        assert len(tokens) <= self.window, f"{len(tokens)} tokens, room for {self.window}"
        blocks = list(range(1, -(-len(tokens) // BLOCK) + 1))
        return self.runner.run([Chunk(tokens, 0, (blocks,) * self.num_groups, wanted)]).logits

    @property
    def bos(self) -> int | None:
        """What stands in place of each window's first token."""
        return self.tokenizer.bos_id if self.tokenizer.adds_bos else None


def open_ours(model: Path, *, window: int, threads: int | None = None, backend: str = "auto") -> Ours:
    """As the engine loads it. Raises CheckpointError or StartupFailed."""
    config = EngineConfig(
        str(model),
        backend=backend,  # type: ignore[arg-type]
        threads=threads,
        max_num_seqs=1,
        max_num_batched_tokens=window,
        max_model_len=window,
        block_size=BLOCK,
        kv_cache_bytes=512 * 2**20,
    )
    kinds = choose_kinds(config)
    checkpoint = open_checkpoint(model)
    shape = to_model_config(checkpoint.config)
    decoder = kinds.backend.load(
        checkpoint, device=kinds.device, dtype=kinds.dtype, on_progress=lambda done, total: None
    )
    manager, pool = make_cache(config, shape, kinds, max_model_len=window)
    runner = kinds.backend.runner(decoder, pool, kinds.device, max_tokens=window, max_len=window)
    return Ours(runner, open_tokenizer(checkpoint), kinds.backend.name, len(manager.stats()), window)


def open_reference(model: Path) -> PreTrainedModel:
    """transformers' model in float32, from a .gguf file (its weights taken out of their packing) or a directory."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    source = {"gguf_file": model.name} if model.is_file() else {}
    folder = model.parent if model.is_file() else model
    found: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **source)
    found.train(False)
    return found


def reference_logits(model: PreTrainedModel) -> Callable[[Sequence[int], int], Tensor]:
    """As `Ours.logits`."""

    def logits(tokens: Sequence[int], wanted: int) -> Tensor:
        with torch.inference_mode():
            found: Tensor = model(torch.tensor([list(tokens)]), logits_to_keep=wanted).logits[0]
        return found

    return logits
