"""The reference ops against their formulas, written out in float64."""

import math

import pytest
import torch

from model.kernels import gelu_tanh_gate, rms_norm, rotate, silu_gate
from model.norm import RMSNorm


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    x, weight = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([1.0, 2.0])
    root = math.sqrt((9 + 16) / 2 + 1e-3)
    torch.testing.assert_close(rms_norm(x, weight, 1e-3), torch.tensor([[3 / root, 8 / root], [0.0, 0.0]]))


def test_rms_norm_works_on_the_last_axis_whatever_comes_before() -> None:
    x, weight = random(5, 3, 8), random(8)
    flat = rms_norm(x.view(15, 8), weight, 1e-6)
    assert torch.equal(rms_norm(x, weight, 1e-6).view(15, 8), flat)


def test_rms_norm_of_bfloat16_is_computed_in_float32() -> None:
    """A square of 200 does not fit into bfloat16's 8 bits; the norm must not see that."""
    x = (random(4, 200) * 10).to(torch.bfloat16)
    norm = RMSNorm.of(random(200, seed=1).to(torch.bfloat16), eps=1e-6, offset=0.0)
    assert norm.weight.dtype == torch.float32
    exact = RMSNorm(norm.weight.double(), 1e-6)(x.double())
    assert norm(x).dtype == torch.bfloat16
    torch.testing.assert_close(norm(x).double(), exact, rtol=2**-8, atol=0)


def test_an_offset_is_added_in_float32_not_in_the_stored_type() -> None:
    """1 + 2^-9 is 1 in bfloat16."""
    norm = RMSNorm.of(torch.full((2,), 2.0**-9, dtype=torch.bfloat16), eps=0.0, offset=1.0)
    assert norm.weight.tolist() == [1 + 2.0**-9] * 2


def test_rotating_turns_number_i_with_number_i_plus_half() -> None:
    angle = torch.tensor([[[0.3, 1.1]]], dtype=torch.float64)
    x = random(1, 2, 4)
    turned = rotate(x, angle.cos(), angle.sin())
    for pair in (0, 1):
        before = torch.complex(x[0, :, pair], x[0, :, pair + 2])
        after = torch.complex(turned[0, :, pair], turned[0, :, pair + 2])
        torch.testing.assert_close(after, before * torch.polar(torch.ones(2).double(), angle[0, 0, pair].expand(2)))


def test_scores_depend_on_the_distance_of_positions_only() -> None:
    q, k = random(1, 1, 6, seed=1), random(1, 1, 6, seed=2)
    speeds = torch.tensor([1.0, 0.1, 0.01], dtype=torch.float64)

    def score(query_at: int, key_at: int) -> float:
        turned = [rotate(x, (at * speeds).cos(), (at * speeds).sin()) for x, at in ((q, query_at), (k, key_at))]
        return float((turned[0] * turned[1]).sum())

    assert score(7, 3) == pytest.approx(score(107, 103))
    assert score(7, 3) != pytest.approx(score(7, 4), rel=1e-6)


def test_gates_are_silu_and_the_tanh_form_of_gelu() -> None:
    gate, up = random(3, 5, seed=3), random(3, 5, seed=4)
    torch.testing.assert_close(silu_gate(gate, up), gate / (1 + (-gate).exp()) * up)
    inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
    torch.testing.assert_close(gelu_tanh_gate(gate, up), 0.5 * gate * (1 + inner.tanh()) * up)
    assert not torch.allclose(gelu_tanh_gate(gate, up), torch.nn.functional.gelu(gate) * up, atol=1e-6, rtol=0)
