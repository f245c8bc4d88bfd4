"""Every family, every switch: logits through the paged cache equal the original's in one pass, to 1e-4 relative."""

from collections.abc import Callable
from typing import Any

import pytest
import transformers
from torch import Tensor

from tests.helpers.original_sizes import SIZES

pytestmark = pytest.mark.reference

LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def llama(**changes: Any) -> Any:
    return transformers.LlamaConfig(**SIZES | changes)


def mistral(**changes: Any) -> Any:
    return transformers.MistralConfig(**SIZES | {"sliding_window": None} | changes)


def qwen2(**changes: Any) -> Any:
    return transformers.Qwen2Config(**SIZES | changes)


def qwen3(**changes: Any) -> Any:
    return transformers.Qwen3Config(**SIZES | {"head_dim": 16} | changes)


def gemma3(**changes: Any) -> Any:
    sizes = SIZES | {"head_dim": 16, "num_hidden_layers": 7, "sliding_window": 8, "query_pre_attn_scalar": 24}
    return transformers.Gemma3TextConfig(**sizes | changes)


CASES = {
    "llama gqa": llama(),
    "llama mha": llama(num_key_value_heads=6),
    "llama mqa": llama(num_key_value_heads=1),
    "llama tied": llama(tie_word_embeddings=True),
    "llama biases": llama(attention_bias=True, mlp_bias=True),
    "llama wide heads": llama(head_dim=10, rms_norm_eps=1e-3),
    "llama theta": llama(rope_theta=500000.0),
    "llama linear": llama(rope_scaling={"rope_type": "linear", "factor": 3.0}),
    "llama llama3": llama(rope_scaling=LLAMA3 | {"original_max_position_embeddings": 32}),
    "llama yarn": llama(rope_scaling=YARN),
    "llama yarn odd": llama(rope_scaling=YARN | {"beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 0.7}),
    "llama yarn mscale": llama(rope_scaling=YARN | {"mscale": 0.8, "mscale_all_dim": 0.5}),
    "llama dynamic, short": llama(rope_scaling={"rope_type": "dynamic", "factor": 4.0}),
    "mistral": mistral(),
    "mistral window": mistral(sliding_window=7),
    "mistral window of one": mistral(sliding_window=1),
    "mistral long window": mistral(sliding_window=64, head_dim=12),
    "qwen2": qwen2(),
    "qwen2 tied": qwen2(tie_word_embeddings=True),
    "qwen2 upper windows": qwen2(use_sliding_window=True, sliding_window=9, max_window_layers=1),
    "qwen2 window off": qwen2(use_sliding_window=False, sliding_window=9, max_window_layers=1),
    "qwen3": qwen3(),
    "qwen3 biases": qwen3(attention_bias=True, tie_word_embeddings=True),
    "qwen3 yarn": qwen3(rope_scaling=YARN),
    "gemma3": gemma3(),
    "gemma3 mqa": gemma3(num_attention_heads=4, num_key_value_heads=1),
    "gemma3 mixed": gemma3(layer_types=["full_attention", "sliding_attention"] * 3 + ["sliding_attention"]),
    "gemma3 linear": gemma3(rope_scaling={"rope_type": "linear", "factor": 8.0}, rope_local_base_freq=5000.0),
    "gemma3 untied": gemma3(tie_word_embeddings=False, attention_bias=True),
}
PIECES = {"at once": [45], "token by token": [1] * 45, "chunks": [16, 1, 7, 20, 1], "blocks": [4, 8, 32, 1]}
TOKENS = [(11 * i * i + 5 * i + 3) % 96 for i in range(45)]


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    """Largest difference, relative to the size of the expected logits."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    error = ((actual - expected).abs().max() / expected.abs().max()).item()
    assert error < tolerance, error


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_originals_however_the_prompt_is_cut(
    case: str, backend: str, pair: Callable[..., Any]
) -> None:
    both = pair(CASES[case])
    expected = both.expected(TOKENS)
    for pieces in PIECES.values():
        assert_close(both.paged(backend).logits(TOKENS, pieces), expected)


def test_the_cases_really_differ(pair: Callable[..., Any]) -> None:
    """The same weights under another rope, window or norm must give other logits, or the tests above prove nothing."""
    plain = pair(llama()).expected(TOKENS)
    for scaling in (LLAMA3 | {"original_max_position_embeddings": 32}, YARN, {"rope_type": "linear", "factor": 3.0}):
        other = pair(llama(rope_scaling=scaling)).expected(TOKENS)
        assert (other - plain).abs().max() > 0.01 * plain.abs().max()
