"""Packed weights: nothing is rounded again, the error is that of int8 activations, and company changes no bit."""

import numpy as np
import pytest
import torch
from torch import Tensor

from model.checkpoint.stored import QUANTISED, Stored, decode
from model.kernels import native
from model.quant.packed import PackedWeight
from tests.helpers.packed import TYPES, bits, make_team, other_isas, quantized, random_stored

ROWS, COLUMNS = 43, 512


def random_x(num_tokens: int, columns: int = COLUMNS, *, seed: int = 1) -> Tensor:
    return torch.randn(num_tokens, columns, generator=torch.Generator().manual_seed(seed))


def exact(stored: Stored) -> np.ndarray:
    return decode(stored).astype(np.float64)


@pytest.mark.parametrize("type_name", [*TYPES, "F64"])
def test_take_gives_the_values_that_the_file_holds(type_name: str) -> None:
    stored = random_stored(type_name, ROWS, COLUMNS)
    rows = torch.tensor([42, 0, 7, 8, 42])
    taken = PackedWeight.stacked([stored], make_team(2)).take(rows)
    want = torch.from_numpy(decode(stored)[rows.numpy()]).float()
    torch.testing.assert_close(taken, want, rtol=2e-7, atol=0)


@pytest.mark.parametrize("isa", ["plain", "avx2"])
@pytest.mark.parametrize("type_name", TYPES)
def test_a_product_is_that_of_the_stored_values_and_the_quantised_activations(type_name: str, isa: str) -> None:
    stored, x = random_stored(type_name, ROWS, COLUMNS), random_x(5)
    out = PackedWeight.stacked([stored], make_team(2, isa)).matmul(x).numpy()
    seen = quantized(x)[0] if type_name in QUANTISED else x.numpy().astype(np.float64)
    sizes = np.abs(seen) @ np.abs(exact(stored)).T  # float32 sums err by a share of the magnitudes that they add up
    if type_name in QUANTISED:  # codes and offsets are summed apart, so they may be large where the values are not
        sizes = sizes + 40 * np.abs(seen).sum(1, keepdims=True) * np.abs(exact(stored)).max()
    assert (np.abs(out - seen @ exact(stored).T) <= 2e-6 * sizes).all()


@pytest.mark.parametrize("type_name", QUANTISED)
def test_the_error_is_at_most_half_a_step_of_each_activation(type_name: str) -> None:
    stored, x = random_stored(type_name, ROWS, COLUMNS), random_x(9)
    out = PackedWeight.stacked([stored], make_team()).matmul(x).numpy()
    bound = (quantized(x)[1] * 0.5) @ np.abs(exact(stored)).T
    assert (np.abs(out - x.numpy().astype(np.float64) @ exact(stored).T) <= 1.001 * bound + 1e-4).all()


@pytest.mark.parametrize("type_name", ["Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q3_K", "Q6_K", "BF16", "F16", "F32"])
def test_company_changes_no_bit(type_name: str) -> None:
    weight = PackedWeight.stacked([random_stored(type_name, ROWS, 768)], make_team(2))
    x = random_x(300, 768)
    alone = torch.cat([weight.matmul(row[None]) for row in x[:100]])
    for num_tokens in [*range(2, 34), 100, 300]:
        together = weight.matmul(x[:num_tokens])
        assert torch.equal(bits(together[:100]), bits(alone[:num_tokens])), num_tokens


@pytest.mark.parametrize("isa", other_isas())
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("type_name", TYPES)
def test_threads_and_instruction_sets_give_the_same_bits(type_name: str, threads: int, isa: str) -> None:
    stored, x = random_stored(type_name, 300, COLUMNS), random_x(21)
    plain = PackedWeight.stacked([stored], make_team(1, "plain")).matmul(x)
    assert torch.equal(bits(PackedWeight.stacked([stored], make_team(threads, isa)).matmul(x)), bits(plain))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 33), (8, 31), (17, 95), (64, 160)])
@pytest.mark.parametrize("kind", [native.U4, native.U5, native.U6, native.S8])
def test_odd_sizes_of_codes(kind: int, rows: int, columns: int) -> None:
    random = np.random.default_rng(3)
    top = {native.U4: 16, native.U5: 32, native.U6: 64, native.S8: 256}[kind]
    codes = random.integers(0, top, (rows, columns), np.uint8)
    groups = -(-columns // 32)
    scales = random.integers(-64, 64, (rows, groups)).astype(np.float32) / 64
    offsets = random.integers(-64, 64, (rows, groups)).astype(np.float32) / 32
    signed = codes.view(np.int8) if kind == native.S8 else codes
    wide = np.repeat(scales, 32, 1)[:, :columns] * signed + np.repeat(offsets, 32, 1)[:, :columns]
    x = random_x(4, columns)
    weight = PackedWeight.from_codes(codes, scales, offsets, kind=kind, team=make_team(2))
    assert np.array_equal(weight.take(torch.arange(rows)).numpy(), wide.astype(np.float32))
    np.testing.assert_allclose(weight.matmul(x).numpy(), quantized(x)[0] @ wide.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 33), (9, 2), (40, 95)])
@pytest.mark.parametrize("type_name", ["BF16", "F16", "F32"])
def test_odd_sizes_of_values(type_name: str, rows: int, columns: int) -> None:
    stored, x = random_stored(type_name, rows, columns), random_x(7, columns)
    out = PackedWeight.stacked([stored], make_team(2)).matmul(x).numpy()
    np.testing.assert_allclose(out, x.numpy().astype(np.float64) @ exact(stored).T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [native.U4, native.U5, native.U6, native.S8])
@pytest.mark.parametrize("isa", ["plain", *other_isas()])
def test_the_largest_codes_do_not_overflow(kind: int, isa: str) -> None:
    code = {native.U4: 15, native.U5: 31, native.U6: 63, native.S8: 128}[kind]
    codes = np.full((16, 64), code, np.uint8)  # 128 is -128 where codes are signed
    value = -128 if kind == native.S8 else code
    weight = PackedWeight.from_codes(codes, np.ones((16, 2), np.float32), kind=kind, team=make_team(1, isa))
    for sign in (1.0, -1.0):
        out = weight.matmul(torch.full((6, 64), 127.0 * sign))
        assert (out == value * 127 * 64 * sign).all()


@pytest.mark.parametrize("isa", ["plain", *other_isas()])
@pytest.mark.parametrize("type_name", ["Q4_1", "Q8_0", "Q6_K", "BF16"])
def test_extreme_activations(type_name: str, isa: str) -> None:
    stored = random_stored(type_name, ROWS, COLUMNS)
    weight = PackedWeight.stacked([stored], make_team(1, isa))
    x = random_x(8)
    x[1] = 0
    x[2] *= 1e-41  # subnormal: counts as zeros where activations are quantised
    x[3] *= 1e33
    x[4, 77] = 1e6  # an outlier costs its own block of 32 precision, and no other
    x[5, 3], x[6, 3] = float("inf"), float("nan")
    out = weight.matmul(x)
    assert (out[1] == 0).all()
    assert out[2].abs().max() < 1e-36
    assert out[[0, 3, 4, 7]].isfinite().all()
    assert not out[[5, 6]].isfinite().any()
    calm = x[4].clone()
    calm[64:96] = 0
    lonely = x[4] - calm
    torch.testing.assert_close(out[4], weight.matmul(torch.stack([calm, lonely])).sum(0), rtol=1e-4, atol=2)
    assert torch.equal(bits(out[7]), bits(weight.matmul(x[7:])[0]))


def test_a_stack_of_different_types_does_the_work_of_its_parts() -> None:
    names = ["Q4_1", "Q4_1", "Q8_0", "F16", "Q4_1", "Q4_1"]
    parts = [random_stored(name, rows, 96, seed=rows) for name, rows in zip(names, [8, 5, 16, 3, 12, 9], strict=True)]
    team = make_team(2)
    stack, x, rows = PackedWeight.stacked(parts, team), random_x(6, 96), torch.tensor([52, 0, 20, 12, 13, 33])
    assert stack.shape == (53, 96)
    assert len(stack.matrices) == 5, "a part may share a matrix with the one before it, if that ends with a panel"
    each = [PackedWeight.stacked([part], team) for part in parts]
    assert torch.equal(bits(stack.matmul(x)), bits(torch.cat([one.matmul(x) for one in each], 1)))
    assert torch.equal(stack.take(rows), torch.cat([one.take(torch.arange(one.shape[0])) for one in each])[rows])


@pytest.mark.parametrize(("type_name", "bytes_per_row"), [("Q4_0", 288), ("Q4_1", 320), ("Q8_0", 544), ("BF16", 1024)])
def test_a_packed_weight_takes_the_bytes_that_its_file_takes(type_name: str, bytes_per_row: int) -> None:
    weight = PackedWeight.stacked([random_stored(type_name, 40, 512)], make_team())
    assert weight.num_bytes == 40 * bytes_per_row


def test_no_tokens_no_work() -> None:
    weight = PackedWeight.stacked([random_stored("Q4_1", 9, 64)], make_team(2))
    assert weight.matmul(torch.empty(0, 64)).shape == (0, 9)
    assert weight.take(torch.empty(0, dtype=torch.int64)).shape == (0, 64)


def test_the_result_has_the_type_of_x() -> None:
    weight = PackedWeight.stacked([random_stored("Q4_1", 9, 64)], make_team())
    assert weight.matmul(random_x(2, 64).bfloat16()).dtype == torch.bfloat16
