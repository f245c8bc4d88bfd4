"""The pool stores what it is given where it is told, and costs nothing until then."""

from pathlib import Path

import pytest
import torch

from cache.groups import KVGroup, group_layers
from cache.pool import KVPool, bytes_per_token, lazy_zeros
from model.attention.backend import KVStore
from model.kernels.ops import CacheLayer, store
from tests.helpers.native_teams import native_team


def make_pool(dtype: torch.dtype = torch.float32) -> KVPool:
    groups = group_layers([8, None, 8])
    return KVPool(groups, [5, 3], block_size=4, num_kv_heads=2, head_dim=6, dtype=dtype)


def test_the_pool_is_what_attention_asks_for() -> None:
    store: KVStore = make_pool()
    asked = {name for name in vars(KVStore) if not name.startswith("_")}
    assert asked == {"block_size", "group_of", "keys", "values", "scales", "write"}
    assert all(hasattr(store, name) for name in asked)


def test_each_layer_has_the_shape_of_its_group() -> None:
    pool = make_pool()
    assert pool.block_size == 4
    assert [pool.group_of(layer) for layer in range(3)] == [1, 0, 1]
    assert pool.keys(1).shape == pool.values(1).shape == (5, 4, 2, 6)
    assert pool.keys(0).shape == pool.values(2).shape == (3, 4, 2, 6)
    assert all(pool.keys(layer).is_contiguous() for layer in range(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_is_written_is_found_at_its_slot_in_the_dtype_of_the_pool(dtype: torch.dtype) -> None:
    pool = make_pool(dtype)
    torch.manual_seed(0)
    keys, values = torch.randn(3, 2, 6), torch.randn(3, 2, 6)
    pool.write(1, torch.tensor([4, 11, 17]), keys, values)
    for row, (block, offset) in enumerate([(1, 0), (2, 3), (4, 1)]):
        assert torch.equal(pool.keys(1)[block, offset], keys[row].to(dtype))
        assert torch.equal(pool.values(1)[block, offset], values[row].to(dtype))
    assert int((pool.keys(1) != 0).any(-1).any(-1).sum()) == 3, "nothing else was touched"


def test_int8_keeps_codes_and_a_scale_per_token_and_head() -> None:
    pool = make_pool(torch.int8)
    torch.manual_seed(0)
    keys, values = torch.randn(3, 2, 6), 100 * torch.randn(3, 2, 6)
    pool.write(1, torch.tensor([4, 11, 17]), keys, values)
    scales = pool.scales(1)
    assert scales is not None
    for codes, scale, exact in zip((pool.keys(1), pool.values(1)), scales, (keys, values), strict=True):
        assert (codes.dtype, scale.dtype, scale.shape) == (torch.int8, torch.float32, (5, 4, 2))
        for row, (block, offset) in enumerate([(1, 0), (2, 3), (4, 1)]):
            step = exact[row].abs().amax(-1) / 127
            assert torch.equal(scale[block, offset], step)
            assert ((codes[block, offset] * step[:, None] - exact[row]).abs() <= 0.501 * step[:, None]).all()
        assert int((scale != 0).sum()) == 6
    assert make_pool().scales(1) is None


def test_codes_have_the_bits_that_native_kernels_write() -> None:
    """Ties, zeros, tiny, huge and odd numbers too: what one backend cached, the other could read."""
    torch.manual_seed(1)
    rows = torch.randn(40, 2, 6)
    rows[0], rows[1, :, 0], rows[2, 0] = 0.0, torch.nan, torch.tensor([127.0, 0.5, 1.5, -2.5, -0.5, 3.5])
    rows[3, 1, 2], rows[4], rows[5], rows[6] = torch.inf, 1e-31 * rows[4], 1e38 * rows[5], 1e-42
    pool, slots = make_pool(torch.int8), torch.arange(4, 20)
    for first in (0, 16, 24):
        part = rows[first : first + 16]
        pool.write(1, slots, part, -part)
        other = make_pool(torch.int8)
        store(native_team(), part, -part, slots, CacheLayer(other.keys(1), other.values(1), other.scales(1)))
        assert torch.equal(pool.keys(1), other.keys(1))
        assert torch.equal(pool.values(1), other.values(1))
        for mine, its in zip(pool.scales(1) or (), other.scales(1) or (), strict=True):
            torch.testing.assert_close(mine, its, rtol=0, atol=0, equal_nan=True)


def test_layers_keys_and_values_do_not_share_memory() -> None:
    pool = make_pool()
    pool.write(0, torch.tensor([5]), torch.ones(1, 2, 6), 2 * torch.ones(1, 2, 6))
    assert not pool.keys(2).any()
    assert not pool.keys(1).any()
    assert (pool.values(0)[1, 1] == 2).all()
    assert (pool.keys(0)[1, 1] == 1).all()


def test_clear_zeroes_the_blocks_of_one_group_even_where_they_hold_nan() -> None:
    pool = make_pool()
    for layer in range(3):
        pool.keys(layer)[1:] = torch.nan
        pool.values(layer)[1:] = torch.nan
    pool.clear(1, [2])
    for layer in (0, 2):
        assert not pool.keys(layer)[2].any()
        assert not pool.values(layer)[2].any()
        assert pool.keys(layer)[1].isnan().all()
    assert pool.keys(1)[2].isnan().all()
    pool.clear(0, [])
    assert pool.values(1)[1:].isnan().all()


def test_clear_zeroes_scales_too() -> None:
    pool = make_pool(torch.int8)
    pool.write(0, torch.tensor([5, 9]), torch.full((2, 2, 6), torch.nan), torch.full((2, 2, 6), torch.inf))
    pool.clear(1, [2])
    for scale in pool.scales(0) or ():
        assert scale[1, 1].isnan().all()
        assert not scale[2].any()


@pytest.mark.parametrize(("dtype", "size"), [(torch.bfloat16, 48), (torch.int8, 40), (torch.float64, 192)])
def test_the_size_of_a_block_is_what_its_tensors_take(dtype: torch.dtype, size: int) -> None:
    pool = make_pool(dtype)
    assert bytes_per_token(2, 6, dtype) == size
    for group, layers in enumerate([(1,), (0, 2)]):
        parts = [
            part for layer in layers for part in (pool.keys(layer), pool.values(layer), *(pool.scales(layer) or ()))
        ]
        storage = sum(part.nbytes for part in parts)
        assert pool.block_bytes(group) * pool.keys(layers[0]).shape[0] == storage


def test_layers_that_are_missing_or_in_two_groups_are_refused() -> None:
    twice = [KVGroup(None, (0,)), KVGroup(4, (0,))]
    with pytest.raises(AssertionError, match=r"\[0, 0\]"):
        KVPool(twice, [2, 2], block_size=4, num_kv_heads=1, head_dim=2, dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_memory_is_committed_only_when_written(dtype: torch.dtype) -> None:
    def resident() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024

    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc here")
    before, size = resident(), 256 * 1024 * 1024
    zeros = lazy_zeros((size // dtype.itemsize // 8, 8), dtype, torch.device("cpu"))
    assert zeros.nbytes == size
    assert zeros.data_ptr() % (2 << 20) == 0, "the first blocks lie on a huge page, too"
    assert lazy_zeros((3, 5), dtype, torch.device("cpu")).data_ptr() % 64 == 0
    assert resident() - before < size / 8
    assert not zeros[-1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_exported_blocks_come_back_in_other_places_bit_by_bit(dtype: torch.dtype) -> None:
    pool, other = make_pool(dtype), make_pool(dtype)
    torch.manual_seed(0)
    for layer in range(3):
        num_slots = 4 * len(pool.keys(layer)) - 4
        pool.write(layer, torch.arange(4, 4 + num_slots), *(torch.randn(num_slots, 2, 6) for _ in range(2)))
    data = pool.export_blocks([[4, 1], [2, 1]])
    assert data.shape == (2, pool.bytes_of_blocks())
    assert pool.bytes_of_blocks() == pool.block_bytes(0) + pool.block_bytes(1)
    other.import_blocks([[3, 2], [1, 2]], data)
    for layer in range(3):
        for mine, its in (([4, 1], [3, 2]),) if pool.group_of(layer) == 0 else (([2, 1], [1, 2]),):
            for stored, filled in zip(planes(pool, layer), planes(other, layer), strict=True):
                assert torch.equal(stored[mine], filled[its])
                rest = [block for block in range(len(filled)) if block not in its]
                assert not filled[rest].any(), "nothing else was touched"


def planes(pool: KVPool, layer: int) -> list[torch.Tensor]:
    return [pool.keys(layer), pool.values(layer), *(pool.scales(layer) or ())]


def test_nothing_is_imported_into_the_null_block() -> None:
    pool = make_pool()
    with pytest.raises(AssertionError, match="null block"):
        pool.import_blocks([[1], [0]], pool.export_blocks([[1], [1]]))
