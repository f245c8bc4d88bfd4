"""The decoder with native attention: near torch's attention in float64, and the same bits however a prompt is cut."""

from dataclasses import replace

import pytest
import torch

from model.attention.native import NativeAttention
from model.building import build_decoder
from model.config import ModelConfig, RopeConfig
from model.decoder import Decoder
from model.families.registry import weight_shapes
from tests.helpers.native_teams import native_team
from tests.helpers.paged import Paged

LLAMA = ModelConfig(
    family="llama",
    vocab_size=50,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=10,
    context_length=1024,
    norm_eps=1e-6,
    rope=RopeConfig(10000.0),
    tie_embeddings=False,
)
GEMMA = replace(
    LLAMA,
    family="gemma3",
    num_kv_heads=1,
    tie_embeddings=True,
    activation="gelu_tanh",
    norm_offset=1.0,
    sandwich_norm=True,
    qk_norm=True,
    query_scale=0.25,
    local_rope=RopeConfig(100.0),
    windows=(6, None),
)
PROMPT = [(7 * i * i + 3) % 50 for i in range(300)]


def tiny(config: ModelConfig, dtype: torch.dtype) -> Decoder:
    generator = torch.Generator().manual_seed(0)
    shapes = weight_shapes(config)
    weights = {name: torch.randn(shape, generator=generator) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    return build_decoder(config, {name: weight.to(dtype) for name, weight in weights.items()})


@pytest.mark.parametrize("config", [LLAMA, GEMMA], ids=["llama", "gemma3"])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_logits_equal_those_of_the_reference(config: ModelConfig, block_size: int) -> None:
    exact = Paged(tiny(config, torch.float64), num_blocks=700).logits(PROMPT, [300])
    decoder = tiny(config, torch.float32)
    for pieces in ([300], [16, 1, 207, 60, 16], [40, *([1] * 30), 230]):
        paged = Paged(decoder, num_blocks=700, block_size=block_size, attention=NativeAttention(native_team()))
        logits = paged.logits(PROMPT, pieces).double()
        assert (logits - exact).abs().max() < 1e-5 * exact.abs().max()


def test_many_sequences_at_once_equal_the_reference() -> None:
    """Prompts, pieces and single tokens in one step; the packer puts them into an order of its own."""
    texts = {str(i): PROMPT[: 20 + 50 * i] for i in range(5)}
    both = [
        Paged(tiny(GEMMA, torch.float32), num_blocks=900, attention=NativeAttention(native_team())),
        Paged(tiny(GEMMA, torch.float64), num_blocks=900),
    ]
    fed = {name: len(text) - 1 - int(name) for name, text in texts.items()}
    results = []
    for paged in both:
        first = [paged.chunk(name, text[: fed[name]], num_logits=1) for name, text in texts.items()]
        then = [paged.chunk(name, text[fed[name] :], num_logits=1) for name, text in texts.items()]
        results.append(torch.cat([paged.runner.run(first).logits, paged.runner.run(then).logits]).double())
    assert (results[0] - results[1]).abs().max() < 1e-5 * results[1].abs().max()
