"""The native row ops against their torch references; every instruction set against plain C; rows against company."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from model.kernels import gelu_tanh_gate, ops, rms_norm, rotate, silu_gate
from model.kernels.native import BLOCK_BYTES, Team
from tests.helpers.native_teams import native_team, other_isas

COLUMNS = [1, 7, 8, 20, 64, 100, 576, 1536, 4099]
EXTREMES = [0.0, -0.0, 1e-40, -1e-30, 3e-5, 1.0, -1.0, 5.5, -9.0, 20.0, -60.0, 88.5, -87.5, 300.0, -300.0, 1e18, -1e18]


def numbers(*shape: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * spread


def normalized(team: Team, x: Tensor, y: Tensor | None, post: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
    stream, out = x.clone(), torch.full_like(x, torch.nan)
    ops.normalize(team, stream, weight, eps=1e-5, y=y, post_weight=post, out=out)
    return stream, out


def turned(team: Team, qkv: Tensor, *, norms: tuple[Tensor, Tensor] | None, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """4 query heads and 2 KV heads, tokens in every second slot of a cache with blocks of 4."""
    num_tokens, head_dim = qkv.shape[0], qkv.shape[1] // 8
    angles = numbers(num_tokens, head_dim // 2, seed=9)
    shape = (-(-num_tokens // 2) + 1, 4, 2, head_dim)
    scales = (torch.zeros(shape[:3]), torch.zeros(shape[:3])) if dtype == torch.int8 else None
    cache = ops.CacheLayer(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype), scales)
    queries, slots = qkv.clone(), torch.arange(num_tokens) * 2 + 4
    ops.rotate_and_store(team, queries, (angles.cos(), angles.sin()), slots, cache, num_heads=4, norms=norms, eps=1e-5)
    found = [pool.flatten(0, 1)[slots] for pool in (cache.keys, cache.values)]
    if cache.scales is not None:
        scale_rows = [scale.flatten(0, 1)[slots] for scale in cache.scales]
        found = [codes * scale[..., None] for codes, scale in zip(found, scale_rows, strict=True)]
    untouched = torch.ones(cache.keys.flatten(0, 1).shape[0], dtype=torch.bool)
    untouched[slots] = False
    assert not cache.keys.flatten(0, 1)[untouched].any()
    return queries[:, : 4 * head_dim].view(num_tokens, 4, head_dim), *found


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@pytest.mark.parametrize("columns", COLUMNS)
def test_rms_norm_is_its_reference(columns: int) -> None:
    x, weight = numbers(5, columns, spread=30.0), numbers(columns, seed=1)
    stream, out = normalized(native_team(), x, None, None, weight)
    torch.testing.assert_close(out.double(), rms_norm(x.double(), weight.double(), 1e-5), rtol=1e-6, atol=1e-6)
    assert same_bits(stream, x)


@pytest.mark.parametrize("columns", COLUMNS)
def test_a_result_is_added_before_the_norm_and_with_sandwich_norms_normalised_before_that(columns: int) -> None:
    x, y, weight, post = (numbers(4, columns), numbers(4, columns, seed=1), numbers(columns, seed=2), numbers(columns))
    stream, out = normalized(native_team(), x, y, None, weight)
    assert same_bits(stream, x + y)
    torch.testing.assert_close(out, rms_norm(x + y, weight, 1e-5), rtol=1e-5, atol=1e-5)
    stream, _ = normalized(native_team(), x, y, post, weight)
    torch.testing.assert_close(stream, x + rms_norm(y, post, 1e-5), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [32, 50, 576])
def test_blocks_are_the_quantised_floats(columns: int) -> None:
    team = native_team()
    x, weight, gates = numbers(3, columns), numbers(columns, seed=1), numbers(3, 2 * columns, seed=2)
    for run in (
        lambda **to: ops.normalize(team, x.clone(), weight, eps=1e-5, **to),
        lambda **to: ops.activate(team, gates, "silu", **to),
    ):
        out, both, alone, expected = torch.empty(3, columns), *(ops.blocks_for(3, columns) for _ in range(3))
        run(out=out, blocks=both)
        run(blocks=alone)
        team.library.kvell_quantize(team.handle, out.data_ptr(), columns, 3, columns, expected.data_ptr())
        assert torch.equal(both, expected)
        assert torch.equal(alone, expected)
        assert expected.shape[1] == -(-columns // 32) * BLOCK_BYTES


@pytest.mark.parametrize("head_dim", [2, 10, 16, 20, 64, 80, 128, 256])
@pytest.mark.parametrize("with_norms", [False, True])
def test_heads_are_normalised_turned_and_stored(head_dim: int, with_norms: bool) -> None:
    qkv, weights = numbers(7, 8 * head_dim, spread=3.0), (numbers(head_dim, seed=4), numbers(head_dim, seed=5))
    angles = numbers(7, head_dim // 2, seed=9)[:, None]
    q, k, v = qkv.view(7, 8, head_dim).split([4, 2, 2], dim=1)
    if with_norms:
        q, k = rms_norm(q, weights[0], 1e-5), rms_norm(k, weights[1], 1e-5)
    q, k = (rotate(x, angles.cos(), angles.sin()) for x in (q, k))
    queries, keys, values = turned(native_team(), qkv, norms=weights if with_norms else None, dtype=torch.float32)
    torch.testing.assert_close(queries, q, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(keys, k, rtol=1e-5, atol=1e-5)
    assert same_bits(values, v)
    _, short_keys, short_values = turned(
        native_team(), qkv, norms=weights if with_norms else None, dtype=torch.bfloat16
    )
    assert same_bits(short_keys, keys.to(torch.bfloat16))
    assert same_bits(short_values, v.to(torch.bfloat16))
    _, coded_keys, coded_values = turned(native_team(), qkv, norms=weights if with_norms else None, dtype=torch.int8)
    for coded, exact in ((coded_keys, keys), (coded_values, v)):
        step = exact.abs().amax(-1, keepdim=True) / 127
        assert ((coded - exact).abs() <= 0.501 * step).all()


def test_the_cosines_of_a_token_may_lie_in_any_row() -> None:
    team, angles = native_team(), numbers(9, 8, seed=1)
    rows, slots = torch.tensor([8, 0, 3]), torch.tensor([1, 2, 5])
    results = []
    for turn, table_rows in (((angles.cos(), angles.sin()), rows), ((angles[rows].cos(), angles[rows].sin()), None)):
        qkv = numbers(3, 48)
        cache = ops.CacheLayer(torch.zeros(2, 4, 1, 16), torch.zeros(2, 4, 1, 16))
        ops.rotate_and_store(team, qkv, turn, slots, cache, num_heads=1, table_rows=table_rows)
        results.append((qkv, cache.keys))
    assert same_bits(results[0][0], results[1][0])
    assert same_bits(results[0][1], results[1][1])


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(("activation", "reference"), [("silu", silu_gate), ("gelu_tanh", gelu_tanh_gate)])
def test_gates_are_their_references(activation: str, reference: Callable[..., Tensor], columns: int) -> None:
    gate_up = numbers(3, 2 * columns, spread=4.0)
    for i, extreme in enumerate(EXTREMES[:columns]):
        gate_up[1, i] = extreme
    out = torch.full((3, columns), torch.nan)
    ops.activate(native_team(), gate_up, activation, out=out)
    exact = reference(*gate_up.double().chunk(2, dim=-1))  # whose own 1 + tanh loses 16 digits where tanh is -1
    torch.testing.assert_close(out.double(), exact, rtol=4e-6, atol=1e-14)


def test_rows_are_picked_scaled_biased_and_judged() -> None:
    team, x = native_team(), numbers(6, 130)
    rows = torch.tensor([5, 0, 5])
    out = torch.empty(3, 130)
    ops.copy_rows(team, x, rows, out, factor=3.0)
    assert same_bits(out, x[rows] * 3.0)
    ops.copy_rows(team, x, None, x, factor=0.5)
    assert same_bits(x, numbers(6, 130) * 0.5)
    bias = numbers(130, seed=3)
    ops.add_bias(team, x, bias)
    assert same_bits(x, numbers(6, 130) * 0.5 + bias)
    for row, column, value in ((1, 129, math.inf), (2, 0, math.nan), (4, 64, -math.inf)):
        x[row, column] = value
    assert ops.finite_rows(team, x).tolist() == [True, False, False, True, False, True]


def test_what_is_no_number_stays_one() -> None:
    team = native_team()
    for value in (math.nan, math.inf):
        x = numbers(2, 40)
        x[1, 13] = value
        _, out = normalized(team, x, None, None, numbers(40))
        assert out[0].isfinite().all()
        assert not out[1, 13].isfinite()
        for activation in ("silu", "gelu_tanh"):
            for column in (3, 23):  # of gate, of up
                gate_up = numbers(2, 40)
                gate_up[1, column] = value
                gated = torch.empty(2, 20)
                ops.activate(team, gate_up, activation, out=gated)
                assert not gated[1, 3].isfinite()


def everything(team: Team, columns: int) -> list[Tensor]:
    """All ops on one set of rows."""
    x, y, weight, post = numbers(6, columns), numbers(6, columns, seed=1), numbers(columns, seed=2), numbers(columns)
    gate_up = numbers(6, 2 * columns, seed=3, spread=5.0)
    extremes = torch.tensor([*EXTREMES, math.nan, math.inf, -math.inf])[: 2 * columns]
    gate_up[2, : len(extremes)] = extremes
    results = [*normalized(team, x, y, post, weight)]
    for activation in ("silu", "gelu_tanh"):
        out, blocks = torch.empty(6, columns), ops.blocks_for(6, columns)
        ops.activate(team, gate_up, activation, out=out, blocks=blocks)
        results += [out, blocks]
    heads = numbers(6, 16 * columns, seed=4)
    norms = (numbers(2 * columns), numbers(2 * columns, seed=1))
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        results += turned(team, heads, norms=norms, dtype=dtype)
    return results


@pytest.mark.parametrize("isa", other_isas())
@pytest.mark.parametrize("columns", [1, 9, 32, 100])
def test_every_instruction_set_gives_plain_cs_bits(isa: str, columns: int) -> None:
    mine, plain = everything(native_team(2, isa), columns), everything(native_team(2, "plain"), columns)
    assert [same_bits(a, b) for a, b in zip(mine, plain, strict=True)] == [True] * len(mine)


def test_threads_and_neighbours_change_no_bits() -> None:
    many = numbers(300, 200, spread=2.0)
    weight, whole = numbers(200, seed=1), torch.empty(300, 200)
    ops.normalize(native_team(1), many.clone(), weight, eps=1e-6, out=whole)
    gated = torch.empty(300, 100)
    ops.activate(native_team(1), many, "gelu_tanh", out=gated)
    for threads in (1, 2, 5):
        for first, end in ((0, 300), (7, 8), (100, 293)):
            part, out, gate = many[first:end].clone(), torch.empty(end - first, 200), torch.empty(end - first, 100)
            ops.normalize(native_team(threads), part, weight, eps=1e-6, out=out)
            ops.activate(native_team(threads), part, "gelu_tanh", out=gate)
            assert same_bits(out, whole[first:end])
            assert same_bits(gate, gated[first:end])
