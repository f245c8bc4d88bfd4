"""The arena: aligned, separate, zeroed pieces."""

from model.quant.arena import Arena


def test_pieces_are_aligned_and_do_not_overlap() -> None:
    arena = Arena(chunk_bytes=1 << 12)
    pieces = [arena.take(size) for size in (1, 64, 65, 4000, 5000, 0, 7)]
    assert [len(piece) for piece in pieces] == [1, 64, 65, 4000, 5000, 0, 7]
    assert all(piece.ctypes.data % 64 == 0 for piece in pieces if len(piece))
    for number, piece in enumerate(pieces, 1):
        assert not piece.any()
        piece[:] = number
    assert all((piece == number).all() for number, piece in enumerate(pieces, 1))


def test_a_piece_outlives_its_arena() -> None:
    piece = Arena().take(100)
    piece[:] = 9
    assert piece.sum() == 900
