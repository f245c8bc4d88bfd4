"""What the packer puts where: positions, slots, block tables, masks and logit rows, by examples and by a plain loop."""

import random

import pytest
import torch

from model.batch import Chunk, Piece, StepBatch
from model.packing import Packer

NEVER = float("-inf")


def packer(*kinds: tuple[int, int | None], block_size: int = 4) -> Packer:
    return Packer(kinds or ((0, None),), block_size, torch.float32, torch.device("cpu"))


def chunk(start: int, num_tokens: int, table: list[int], num_logits: int = 1, first_id: int = 100) -> Chunk:
    return Chunk(list(range(first_id, first_id + num_tokens)), start, (table,), num_logits)


def visible(piece: Piece) -> list[list[list[int]]]:
    """Per chunk and token of a piece: the columns it may look at."""
    return [[(row == 0).nonzero().flatten().tolist() for row in rows] for rows in piece.mask]


def test_one_prompt_writes_where_its_table_says() -> None:
    batch = packer().pack([chunk(0, 6, [7, 3])])
    view = batch.views[0, None]
    assert batch.tokens.tolist() == [100, 101, 102, 103, 104, 105]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 5]
    assert view.slots.tolist() == [28, 29, 30, 31, 12, 13]
    assert batch.rows.tolist() == [5]


def test_one_prompt_looks_back_and_at_itself() -> None:
    (piece,) = packer().pack([chunk(3, 3, [7, 3])]).views[0, None].pieces
    assert piece.blocks.tolist() == [[7, 3]]
    assert visible(piece) == [[[0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]]]


def test_single_tokens_share_one_piece_padded_with_the_null_block() -> None:
    (piece,) = packer().pack([chunk(5, 1, [8, 9]), chunk(0, 1, [4])]).views[0, None].pieces
    assert piece.blocks.tolist() == [[4, 0], [8, 9]]
    assert visible(piece) == [[[0]], [[0, 1, 2, 3, 4, 5]]]


def test_a_block_beyond_the_token_is_not_read() -> None:
    (piece,) = packer().pack([chunk(3, 1, [8, 9])]).views[0, None].pieces
    assert piece.blocks.tolist() == [[8]]


def test_a_window_reads_only_the_blocks_it_touches() -> None:
    """Position 13 with a window of 5 sees 9..13: the last two of block 2's positions and two of block 3's."""
    (piece,) = packer((0, 5)).pack([chunk(13, 1, [0, 0, 6, 5])]).views[0, 5].pieces
    assert piece.blocks.tolist() == [[6, 5]]
    assert visible(piece) == [[[1, 2, 3, 4, 5]]]


def test_a_window_moves_with_every_token_of_a_chunk() -> None:
    (piece,) = packer((0, 2)).pack([chunk(4, 3, [0, 6])]).views[0, 2].pieces
    assert piece.blocks.tolist() == [[0, 6]]
    assert visible(piece) == [[[3, 4], [4, 5], [5, 6]]]


def test_every_kind_of_layer_has_its_own_view_of_its_own_group() -> None:
    kinds = ((0, None), (1, 4))
    batch = packer(*kinds).pack([Chunk([1], 9, ([3, 4, 5], [0, 7, 8]), 1)])
    assert {kind: view.pieces[0].blocks.tolist() for kind, view in batch.views.items()} == {
        (0, None): [[3, 4, 5]],
        (1, 4): [[7, 8]],
    }
    assert [int(batch.views[kind].slots) for kind in kinds] == [5 * 4 + 1, 8 * 4 + 1]


def test_a_long_neighbour_does_not_make_short_ones_read_padding() -> None:
    long = chunk(4 * 100, 1, list(range(1, 102)))
    short = [chunk(4, 1, [200 + 2 * i, 201 + 2 * i]) for i in range(3)]
    pieces = packer().pack([short[0], long, short[1], short[2]]).views[0, None].pieces
    assert [tuple(piece.blocks.shape) for piece in pieces] == [(3, 2), (1, 101)]


def test_nothing_to_pack_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        packer().pack([])


def random_chunks(rng: random.Random) -> list[Chunk]:
    """Prompt pieces, single tokens and drafts of several sequences, each with a table of its own blocks."""
    chunks, block = [], 1
    for number in range(rng.randint(1, 9)):
        start, num_tokens = rng.choice([0, 1, 3, 4, 15, 70, 300]), rng.choice([1, 1, 1, 2, 4, 17])
        num_blocks = (start + num_tokens - 1) // 4 + 1 + rng.randint(0, 1)
        table = list(range(block, block + num_blocks))
        block += num_blocks
        wanted = rng.choice([0, 1, num_tokens])
        chunks.append(chunk(start, num_tokens, table, wanted, first_id=1000 * number))
    return chunks


def flat_reads(batch: StepBatch, window: int | None) -> dict[int, list[int]]:
    """Token id -> the slots its query looks at, from the packed tensors."""
    reads: dict[int, list[int]] = {}
    for piece in batch.views[0, window].pieces:
        num_chunks, num_tokens, _ = piece.mask.shape
        slots = (piece.blocks[:, :, None] * 4 + torch.arange(4)).flatten(1)
        for row in range(num_chunks):
            for column in range(num_tokens):
                token = int(batch.tokens[piece.first + row * num_tokens + column])
                reads[token] = slots[row][piece.mask[row, column] == 0].tolist()
    return reads


@pytest.mark.parametrize("window", [None, 1, 4, 9, 1000])
@pytest.mark.parametrize("seed", range(12))
def test_any_mix_is_packed_as_a_plain_loop_would(seed: int, window: int | None) -> None:
    chunks = random_chunks(random.Random(seed))
    batch = packer((0, window)).pack(chunks)
    expected_reads, expected_slots, expected_positions, wanted = {}, {}, {}, []
    for each in chunks:
        table = each.tables[0]
        for offset, token in enumerate(each.tokens):
            position = each.start + offset
            lowest = 0 if window is None else max(0, position - window + 1)
            expected_reads[token] = [table[p // 4] * 4 + p % 4 for p in range(lowest, position + 1)]
            expected_slots[token] = table[position // 4] * 4 + position % 4
            expected_positions[token] = position
        wanted += list(each.tokens)[len(each.tokens) - each.num_logits :]
    tokens = batch.tokens.tolist()
    assert flat_reads(batch, window) == expected_reads
    assert dict(zip(tokens, batch.views[0, window].slots.tolist(), strict=True)) == expected_slots
    assert dict(zip(tokens, batch.positions.tolist(), strict=True)) == expected_positions
    assert [tokens[row] for row in batch.rows.tolist()] == wanted
