"""Layers with the same window share block tables."""

from cache.groups import KVGroup, group_layers, most_blocks


def test_layers_are_grouped_by_window_the_full_group_first() -> None:
    assert group_layers([512, None, 128, 512]) == (
        KVGroup(None, (1,)),
        KVGroup(128, (2,)),
        KVGroup(512, (0, 3)),
    )


def test_a_model_without_a_full_layer_has_no_full_group() -> None:
    assert group_layers([4096, 4096]) == (KVGroup(4096, (0, 1)),)


def test_a_full_group_needs_every_block_and_a_window_never_more_than_itself_and_a_chunk() -> None:
    assert most_blocks(None, 33, block_size=16, max_chunk=16) == 3
    assert most_blocks(32, 33, block_size=16, max_chunk=16) == 3
    assert most_blocks(32, 10_000, block_size=16, max_chunk=16) == 4  # 47 positions touch 4 blocks at most


def test_the_bound_of_a_window_is_the_worst_alignment() -> None:
    """Recounted: the chunk that starts at p touches the blocks from its first visible position to its last."""
    for window, max_chunk, block_size in [(1, 1, 4), (5, 3, 4), (8, 8, 4), (9, 4, 1), (7, 16, 16), (2, 1, 2)]:
        touched = max(
            (start + max_chunk - 1) // block_size - max(0, start - window + 1) // block_size + 1 for start in range(200)
        )
        bound = most_blocks(window, 10_000, block_size=block_size, max_chunk=max_chunk)
        assert touched <= bound <= touched + 1
