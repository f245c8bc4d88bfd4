"""Native paged attention against softmax written out, and the law that a query's bits show nothing but its own past."""

import random
from itertools import product

import pytest
import torch

from model.kernels.attention import HeadShape
from model.kernels.ops import CacheLayer, store
from tests.helpers.native_teams import native_team, other_isas
from tests.helpers.paged_heads import PagedHeads, same_bits

MIX = [(0, 1), (3, 40), (300, 1), (0, 150), (255, 2), (700, 70), (256, 1), (511, 1), (1, 15)]
SHAPES = [HeadShape(*shape) for shape in product((1, 6, 8), (1, 2), (16, 80)) if shape[0] % shape[1] == 0]
ODD_SHAPES = [
    HeadShape(9, 3, 64),
    HeadShape(4, 1, 256),
    HeadShape(8, 8, 128),
    HeadShape(2, 2, 20),
    HeadShape(24, 2, 13),
]
WINDOWS = [None, 1, 5, 100, 256, 512]


def pieces_of(start: int, total: int, sizes: list[int]) -> list[list[tuple[int, int, int]]]:
    """Steps of one chunk each that compute positions start.. of sequence 0 in pieces of these sizes, over and over."""
    steps, done = [], 0
    while done < total:
        n = min(sizes[len(steps) % len(sizes)], total - done)
        steps.append([(0, start + done, n)])
        done += n
    return steps


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("shape", SHAPES + ODD_SHAPES, ids=str)
def test_a_mixed_step_equals_softmax_written_out(shape: HeadShape, window: int | None) -> None:
    for dtype, block_size in ((torch.float32, 16), (torch.bfloat16, 5)):
        heads = PagedHeads(shape, MIX, block_size=block_size, window=window, dtype=dtype)
        for actual, expected in zip(heads.attend(native_team()), heads.expected(), strict=True):
            torch.testing.assert_close(actual.double(), expected, rtol=0, atol=4e-6)


@pytest.mark.parametrize("window", [None, 90, 300])
@pytest.mark.parametrize("shape", ODD_SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_chunks_of_any_length_give_the_same_bits(shape: HeadShape, window: int | None, dtype: torch.dtype) -> None:
    heads = PagedHeads(shape, [(70, 442)], window=window, dtype=dtype)
    whole = heads.attend(native_team())
    for sizes in ([1], [7], [32], [97, 1, 3], [256], [511]):
        assert same_bits(heads.attend(native_team(), pieces_of(70, 442, sizes)), whole), sizes


@pytest.mark.parametrize("window", [None, 40])
def test_neighbours_change_no_bits(window: int | None) -> None:
    shape = HeadShape(6, 2, 20)
    heads = PagedHeads(shape, MIX, window=window)
    alone = heads.attend(native_team(), [[(i, start, n)] for i, (start, n) in enumerate(MIX)])
    assert same_bits(heads.attend(native_team()), alone)
    rng = random.Random(0)
    for _ in range(5):
        order = [(i, start, n) for i, (start, n) in enumerate(MIX)]
        rng.shuffle(order)
        cut = rng.randrange(1, len(order))
        assert same_bits(heads.attend(native_team(), [order[:cut], order[cut:]]), alone)


@pytest.mark.parametrize("shape", ODD_SHAPES, ids=str)
def test_the_number_of_threads_changes_no_bits(shape: HeadShape) -> None:
    """Alone, a long context is split by ranges among several threads; among many it isn't."""
    for pieces in ([(1500, 1)], [(900, 30)], MIX):
        heads = PagedHeads(shape, pieces, dtype=torch.bfloat16)
        single = heads.attend(native_team(1))
        for threads in (2, 3, 7):
            assert same_bits(heads.attend(native_team(threads)), single), (pieces, threads)


@pytest.mark.parametrize("block_size", [1, 3, 16, 48, 300])
def test_the_block_size_changes_no_bits(block_size: int) -> None:
    shape = HeadShape(4, 2, 16)
    pieces = [(300, 20), (0, 33), (600, 1)]
    assert same_bits(
        PagedHeads(shape, pieces, block_size=block_size, window=90).attend(native_team()),
        PagedHeads(shape, pieces, block_size=32, window=90).attend(native_team()),
    )


DECODING = [(37 * i % 611, 1) for i in range(13)]  # so many that a tile takes all KV heads of a sequence


@pytest.mark.parametrize("window", [None, 60])
@pytest.mark.parametrize("shape", [*ODD_SHAPES, HeadShape(128, 64, 8)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_decode_step_of_many_equals_softmax_and_each_alone(
    shape: HeadShape, dtype: torch.dtype, window: int | None
) -> None:
    heads = PagedHeads(shape, DECODING, window=window, dtype=dtype)
    together = heads.attend(native_team())
    for actual, expected in zip(together, heads.expected(), strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=0, atol=4e-6)
    for other in (native_team(1), native_team(7), native_team(2, "plain")):
        assert same_bits(heads.attend(other), together)
    assert same_bits(heads.attend(native_team(), [[(i, start, 1)] for i, (start, _) in enumerate(DECODING)]), together)


@pytest.mark.parametrize("block_size", [3, 32, 48])
def test_the_block_size_changes_no_bits_of_a_decode_step(block_size: int) -> None:
    shape = HeadShape(9, 3, 40)
    one = PagedHeads(shape, DECODING, block_size=block_size, window=90, dtype=torch.bfloat16)
    assert same_bits(
        one.attend(native_team()), PagedHeads(shape, DECODING, window=90, dtype=torch.bfloat16).attend(native_team())
    )


@pytest.mark.parametrize("isa", other_isas())
@pytest.mark.parametrize("shape", ODD_SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_instruction_set_gives_plain_cs_bits(isa: str, shape: HeadShape, dtype: torch.dtype) -> None:
    for window in (None, 60):
        heads = PagedHeads(shape, [(0, 70), (290, 1), (500, 9)], window=window, dtype=dtype)
        assert same_bits(heads.attend(native_team(2, isa)), heads.attend(native_team(2, "plain")))


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -1e30, 0.0])
@pytest.mark.parametrize("window", [None, 33])
def test_what_lies_in_unused_slots_has_no_effect(poison: float, window: int | None) -> None:
    """Behind a sequence's end, before its window, in the null block and in nobody's blocks."""
    pieces = [(0, 3), (100, 1), (290, 50), (17, 1)]
    clean = PagedHeads(HeadShape(6, 2, 64), pieces, window=window, poison=7.0)
    heads = PagedHeads(HeadShape(6, 2, 64), pieces, window=window, poison=poison)
    if window is not None:
        for number, (start, _) in enumerate(pieces):
            gone = heads.slots(number)[: max(0, start - window + 1)]
            heads.cache.keys.flatten(0, 1)[gone] = heads.cache.values.flatten(0, 1)[gone] = poison
    seen = heads.attend(native_team())
    assert all(part.isfinite().all() for part in seen)
    assert same_bits(seen, clean.attend(native_team()))


def test_a_state_that_is_no_number_shows_in_its_own_sequence_only() -> None:
    pieces = [(40, 1), (41, 1), (0, 30)]
    clean, broken = (PagedHeads(HeadShape(4, 2, 16), pieces) for _ in range(2))
    broken.cache.keys.flatten(0, 1)[broken.slots(1)[7]] = torch.nan
    before, after = clean.attend(native_team()), broken.attend(native_team())
    assert after[1].isnan().all()
    assert same_bits([after[0], after[2]], [before[0], before[2]])


def test_scores_far_apart_neither_overflow_nor_vanish() -> None:
    """One key's score is larger by hundreds: all weight is its; and all scores may be hugely negative."""
    heads = PagedHeads(HeadShape(1, 1, 16), [(600, 1)], scale=1.0)
    queries, _, values = heads.sequences[0]
    slots = heads.slots(0)
    for position in (0, 255, 256, 600):
        heads.cache.keys.flatten(0, 1)[slots] = -10.0 * queries[600]
        heads.cache.keys.flatten(0, 1)[slots[position]] = 10.0 * queries[600]
        torch.testing.assert_close(heads.attend(native_team())[0][0], values[position], rtol=0, atol=0)
    heads.cache.keys.flatten(0, 1)[slots] = -1000.0 * queries[600]
    torch.testing.assert_close(heads.attend(native_team())[0][0], values.mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pieces", [MIX, DECODING], ids=["mix", "decoding"])
def test_an_int8_cache_is_read_as_codes_times_scales(pieces: list[tuple[int, int]]) -> None:
    heads = PagedHeads(HeadShape(6, 2, 20), pieces)
    coded = torch.zeros(heads.cache.keys.shape, dtype=torch.int8), torch.zeros(heads.cache.keys.shape, dtype=torch.int8)
    scales = torch.full(coded[0].shape[:3], torch.nan), torch.full(coded[0].shape[:3], torch.nan)
    cache = CacheLayer(*coded, scales)
    for number, (_, keys, values) in enumerate(heads.sequences):
        store(native_team(), keys, values, heads.slots(number), cache)
    codes = [part.float() * scale[..., None] for part, scale in zip(coded, scales, strict=True)]
    heads.cache = CacheLayer(codes[0], codes[1])
    plain = heads.attend(native_team())
    heads.cache = cache
    assert same_bits(heads.attend(native_team()), plain)
    for mine, exact in zip(plain, heads.expected(), strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=0, atol=0.03)


def test_the_self_test_passes_here_and_compares_attention_too() -> None:
    for isa in other_isas():
        assert native_team(2, isa).differing == ""
