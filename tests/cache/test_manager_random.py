"""Law 3 on random crowded workloads: no block is lost, and attention always reads what it should."""

import random

import pytest

from tests.helpers.cache_world import Live, World, crafty_prompt

SHAPES = [
    # windows of the layers, blocks per group, block size, longest chunk
    pytest.param([None], [9], 4, 8, id="full-tiny"),
    pytest.param([None], [40], 4, 16, id="full"),
    pytest.param([None], [13], 1, 3, id="full-block-of-one"),
    pytest.param([None, 6], [14, 7], 4, 8, id="window-tight"),
    pytest.param([None, 6], [14, 30], 4, 5, id="window-roomy"),
    pytest.param([None, 4, 11], [20, 6, 12], 4, 8, id="two-windows"),
    pytest.param([None, 1], [16, 8], 2, 4, id="window-of-one"),
    pytest.param([9], [9], 4, 8, id="only-window"),
    pytest.param([3, 8], [10, 14], 2, 6, id="only-windows"),
]
ROOTS = [("", ""), ("", ""), ("", "salt"), ("lora", "")]


def crowd(shape: tuple[list[int | None], list[int], int, int], *, prefix_cache: bool = True) -> World:
    windows, num_blocks, block_size, max_chunk = shape
    return World(windows, num_blocks, block_size=block_size, max_chunk=max_chunk, prefix_cache=prefix_cache)


def longest_prompt(world: World) -> int:
    return min(world.manager.capacity_tokens, 10 * world.block_size) - 2


def arrive(world: World, rng: random.Random) -> Live:
    tokens = crafty_prompt(rng, world.block_size, longest_prompt(world))
    goal = min(longest_prompt(world) + 2, len(tokens) + rng.randrange(1, 6))
    return world.open(tokens, rng.choice(ROOTS), goal=goal)


def random_chunks(world: World, rng: random.Random) -> list[tuple[Live, int]]:
    """Some of the live sequences, in any order, whether or not they should have waited."""
    chunks = []
    for live in rng.sample(world.live, rng.randint(0, len(world.live))):
        if rng.random() < 0.7:
            world.match(live)
        if world.manager.blocked(live.seq) and rng.random() < 0.8:
            continue
        num_tokens = rng.randint(1, min(live.rest, world.max_chunk))
        if world.reserve(live, num_tokens) and rng.random() < 0.9:  # the others' steps come to nothing
            chunks.append((live, num_tokens))
    return chunks


def after_step(world: World, rng: random.Random, chunks: list[tuple[Live, int]]) -> None:
    """Whoever has computed its last token gets another one, or is done. Who has read something spoiled is discarded."""
    for live, _ in chunks:
        if live.spoiled and rng.random() < 0.5:
            world.close(live, discard=True)
        elif live.rest == 0 and len(live.tokens) >= live.goal:
            world.close(live, discard=live.spoiled)
        elif live.rest == 0:
            live.tokens.append(rng.choice([7, 8, 9]))


@pytest.mark.parametrize("shape", [pytest.param(param.values, id=param.id) for param in SHAPES])
@pytest.mark.parametrize(("seed", "prefix_cache"), [(0, True), (1, True), (2, True), (3, True), (4, False)])
def test_attention_reads_what_it_should_in_any_order_of_calls(
    shape: tuple[list[int | None], list[int], int, int], seed: int, prefix_cache: bool
) -> None:
    rng = random.Random(f"any order {seed}")
    world = crowd(shape, prefix_cache=prefix_cache)
    for _ in range(120):
        if len(world.live) < 5 and rng.random() < 0.5:
            arrive(world, rng)
        if world.live and rng.random() < 0.15:
            world.close(rng.choice(world.live))  # a cancel, or a preemption
        chunks = random_chunks(world, rng)
        world.run(chunks)
        after_step(world, rng, chunks)
    for live in list(world.live):
        world.close(live)
    assert all(usage.used == 0 for usage in world.manager.stats())


@pytest.mark.parametrize("shape", [pytest.param(param.values, id=param.id) for param in SHAPES])
@pytest.mark.parametrize("seed", range(4))
def test_what_a_failed_sequence_computed_is_never_found_again(
    shape: tuple[list[int | None], list[int], int, int], seed: int
) -> None:
    rng = random.Random(f"spoil {seed}")
    world = crowd(shape)
    num_failed = 0
    for _ in range(120):
        if len(world.live) < 5 and rng.random() < 0.5:
            arrive(world, rng)
        if world.live and rng.random() < 0.15:
            gone = rng.choice(world.live)
            world.close(gone, discard=gone.spoiled)
        chunks = random_chunks(world, rng)
        spoil = chunks[0][0] if chunks and rng.random() < 0.2 else None
        num_failed += spoil is not None
        world.run(chunks, spoil=spoil)
        after_step(world, rng, chunks)
        if not any(live.spoiled for live in world.live):
            assert world.spoiled_blocks_in_tree() == []
    assert num_failed > 3


@pytest.mark.parametrize("shape", [pytest.param(param.values, id=param.id) for param in SHAPES])
@pytest.mark.parametrize("seed", range(4))
def test_something_can_always_go_on(shape: tuple[list[int | None], list[int], int, int], seed: int) -> None:
    """A scheduler that respects waiting and preempts the youngest finishes everything: law 5 as far as blocks go."""
    rng = random.Random(f"go on {seed}")
    world = crowd(shape)
    waiting = [(crafty_prompt(rng, world.block_size, longest_prompt(world)), rng.choice(ROOTS)) for _ in range(25)]
    goals = {id(tokens): min(len(tokens) + rng.randrange(4), longest_prompt(world) + 2) for tokens, _ in waiting}
    num_done, num_waits = 0, 0
    while waiting or world.live:
        while waiting and len(world.live) < 6:
            tokens, root = waiting.pop(0)
            world.open(tokens, root, goal=goals[id(tokens)])
        chunks: list[tuple[Live, int]] = []
        for live in list(world.live):
            if live not in world.live:
                continue  # preempted a moment ago
            world.match(live)
            if world.manager.blocked(live.seq):
                num_waits += 1
                continue
            num_tokens = min(live.rest, world.max_chunk)
            while not world.reserve(live, num_tokens):
                youngest = world.live[-1]
                assert youngest is not live or len(world.live) > 1, "one sequence alone must fit"
                world.close(youngest)
                waiting.insert(0, (youngest.tokens, youngest.root))
                chunks = [chunk for chunk in chunks if chunk[0] is not youngest]
                if youngest is live:
                    break
            else:
                chunks.append((live, num_tokens))
        assert chunks, "nobody could go on"
        if rng.random() < 0.05:
            gone = rng.choice(world.live)
            chunks = [chunk for chunk in chunks if chunk[0] is not gone]
            world.close(gone)
            num_done += 1
        world.run(chunks)
        num_done += sum(live.rest == 0 and len(live.tokens) >= live.goal for live, _ in chunks)
        after_step(world, rng, chunks)
    assert num_done == 25
    assert num_waits > 0 or shape[0] != [None], "the workload never made anybody wait"
