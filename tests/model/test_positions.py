"""Rotary embeddings: known angles, every scaling's landmarks, and that a position's angles depend on nothing else.

The numbers of every scaling are compared with the original's code in tests/reference.
"""

import math

import pytest
import torch

from model.config import RopeConfig
from model.positions import Rotary

CPU = torch.device("cpu")
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192.0}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32.0}
CONFIGS = [
    RopeConfig(10000.0),
    RopeConfig(10000.0, "linear", {"factor": 4.0}),
    RopeConfig(500000.0, "llama3", LLAMA3),
    RopeConfig(10000.0, "yarn", YARN),
    RopeConfig(10000.0, "dynamic", {"factor": 4.0, "original_max_position_embeddings": 32.0}),
]


def rotary(config: RopeConfig, head_dim: int = 8) -> Rotary:
    return Rotary.of(config, head_dim=head_dim, device=CPU)


def test_angles_are_position_over_base_to_the_power_of_pair() -> None:
    cos, sin = rotary(RopeConfig(100.0), head_dim=4)(torch.tensor([0, 3]), torch.float64)
    assert cos.shape == sin.shape == (2, 1, 2)
    expected = torch.tensor([[0.0, 0.0], [3.0, 0.3]], dtype=torch.float64)
    torch.testing.assert_close(cos[:, 0], expected.cos(), atol=1e-7, rtol=0)
    torch.testing.assert_close(sin[:, 0], expected.sin(), atol=1e-7, rtol=0)


def test_linear_scaling_is_a_shorter_step() -> None:
    plain, linear = rotary(CONFIGS[0]), rotary(CONFIGS[1])
    positions = torch.arange(0, 64, 4)
    torch.testing.assert_close(linear(positions, torch.float32), plain(positions // 4, torch.float32))


def test_llama3_keeps_short_waves_and_stretches_long_ones() -> None:
    plain = rotary(RopeConfig(500000.0), head_dim=64).frequencies
    scaled = rotary(CONFIGS[2], head_dim=64).frequencies
    waves = 2 * math.pi / plain
    assert torch.equal(scaled[waves < 8192 / 4], plain[waves < 8192 / 4])
    torch.testing.assert_close(scaled[waves > 8192], plain[waves > 8192] / 8)
    between = (waves > 8192 / 4) & (waves < 8192)
    assert between.any()
    assert ((scaled[between] < plain[between]) & (scaled[between] > plain[between] / 8)).all()


def test_divisors_state_the_same_as_llama3_does() -> None:
    """A GGUF holds the quotients instead of the rule."""
    plain, scaled = (rotary(config, head_dim=64).frequencies for config in (RopeConfig(500000.0), CONFIGS[2]))
    stated = RopeConfig(500000.0, divisors=tuple((plain / scaled).tolist()))
    torch.testing.assert_close(rotary(stated, head_dim=64).frequencies, scaled)


def test_yarn_keeps_the_first_pair_stretches_the_last_and_scales_the_size() -> None:
    scaled, plain = rotary(CONFIGS[3], head_dim=64), rotary(CONFIGS[0], head_dim=64)
    assert scaled.frequencies[0] == plain.frequencies[0]
    torch.testing.assert_close(scaled.frequencies[-1], plain.frequencies[-1] / 4)
    assert scaled.magnitude == pytest.approx(0.1 * math.log(4.0) + 1.0)
    cos, sin = scaled(torch.tensor([5]), torch.float64)
    torch.testing.assert_close((cos**2 + sin**2).sqrt(), torch.full_like(cos, scaled.magnitude))


def test_yarn_takes_a_stated_attention_factor() -> None:
    assert rotary(RopeConfig(10000.0, "yarn", YARN | {"attention_factor": 0.5})).magnitude == 0.5


def test_dynamic_scaling_changes_nothing_within_the_trained_length() -> None:
    plain, dynamic = rotary(CONFIGS[0]), rotary(CONFIGS[4])
    short = torch.arange(32)
    torch.testing.assert_close(dynamic(short, torch.float64), plain(short, torch.float64), atol=1e-5, rtol=0)


@pytest.mark.parametrize("position", [32, 40, 100])
def test_dynamic_scaling_raises_the_base_with_the_length(position: int) -> None:
    length, original, factor, head_dim = position + 1, 32, 4.0, 8
    base = 10000.0 * (factor * length / original - (factor - 1)) ** (head_dim / (head_dim - 2))
    turned = rotary(CONFIGS[4])(torch.tensor([position]), torch.float64)
    expected = rotary(RopeConfig(base))(torch.tensor([position]), torch.float64)
    torch.testing.assert_close(turned, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.scaling)
def test_a_position_has_the_same_bits_wherever_it_lies_in_a_step(config: RopeConfig) -> None:
    """Vectorised sines round differently from their scalar tails: neither may show."""
    turn = rotary(config, head_dim=10)
    positions = torch.randperm(97)
    together = turn(positions, torch.float32)
    alone = [turn(positions[i : i + 1], torch.float32) for i in range(97)]
    for which in (0, 1):
        assert torch.equal(together[which], torch.cat([one[which] for one in alone]))
