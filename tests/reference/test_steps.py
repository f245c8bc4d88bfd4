"""Steps as a server runs them, against the original: sequences mixed, scaling that grows, directories as saved."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from model.checkpoint.source import open_checkpoint
from model.load import load_model
from tests.helpers.original_sizes import SIZES
from tests.helpers.paged import Paged

pytestmark = pytest.mark.reference

NARROW = {"head_dim": 16, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2}
CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "mistral": lambda: transformers.MistralConfig(**SIZES | {"sliding_window": 7}),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES),
    "gemma3": lambda: transformers.Gemma3TextConfig(**SIZES | NARROW | {"num_hidden_layers": 4}),
}


def text(seed: int, length: int) -> list[int]:
    return torch.randint(3, 96, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def assert_close(actual: Tensor, expected: Tensor) -> None:
    error = ((actual - expected).abs().max() / expected.abs().max()).item()
    assert error < 1e-4, error


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("family", CONFIGS)
def test_sequences_mixed_in_every_step_equal_the_original_alone(
    family: str, backend: str, pair: Callable[..., Any]
) -> None:
    """Prompts join while others decode: every step holds single tokens, pieces and whole prompts."""
    both = pair(CONFIGS[family]())
    paged = both.paged(backend, num_blocks=500, block_size=4)
    plans = {"a": [1] * 12, "b": [16, 1, 1, 1, 1], "c": [8, 8, 8], "d": [30, 5, 1], "e": [3, 1, 1, 20], "f": [1, 33]}
    texts = {name: text(seed, sum(plan)) for seed, (name, plan) in enumerate(plans.items())}
    joins = {"a": 0, "b": 0, "c": 2, "d": 3, "e": 1, "f": 5}
    rows: dict[str, list[Tensor]] = {name: [] for name in plans}
    for step in range(12):
        running = [name for name in plans if 0 <= step - joins[name] < len(plans[name])]
        chunks = []
        for name in running:
            turn = step - joins[name]
            done, size = sum(plans[name][:turn]), plans[name][turn]
            chunks.append(paged.chunk(name, texts[name][done : done + size], num_logits=size))
        logits = paged.runner.run(chunks).logits.split([chunk.num_logits for chunk in chunks])
        for name, part in zip(running, logits, strict=True):
            rows[name].append(part)
    for name in plans:
        assert_close(torch.cat(rows[name]), both.expected(texts[name]))


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
@pytest.mark.parametrize("backend", ["torch", "native"])
def test_dynamic_scaling_equals_the_original_fed_token_by_token(backend: str, pair: Callable[..., Any]) -> None:
    """The original turns old keys and new queries by different angles once a text outgrows the trained length.

    It does so consistently when it is fed one token at a time, which is what ours does however the text is cut.
    """
    scaling = {"rope_type": "dynamic", "factor": 4.0}
    both = pair(transformers.LlamaConfig(**SIZES | {"max_position_embeddings": 16, "rope_scaling": scaling}))
    tokens, cache, rows = text(7, 40), transformers.DynamicCache(), []
    with torch.no_grad():
        for token in tokens:
            rows.append(both.original(torch.tensor([[token]]), past_key_values=cache, use_cache=True).logits[0])
    for pieces in ([40], [1] * 40, [13, 27]):
        assert_close(both.paged(backend).logits(tokens, pieces), torch.cat(rows))


@pytest.mark.parametrize("family", CONFIGS)
def test_a_directory_saved_by_the_original_loads_and_says_the_same(
    family: str, pair: Callable[..., Any], tmp_path: Path
) -> None:
    """config.json as transformers 5 writes it, weights in shards."""
    both = pair(CONFIGS[family]())
    both.original.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    decoder = load_model(open_checkpoint(tmp_path), device=torch.device("cpu"), dtype=torch.float32)
    tokens = text(3, 30)
    assert_close(Paged(decoder).logits(tokens, [7, 23]), both.expected(tokens))
