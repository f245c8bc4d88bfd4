"""The checker notices: each test breaks one thing by hand."""

from collections.abc import Callable

import pytest

from cache.groups import group_layers
from cache.manager import CacheManager, CacheSequence


def breakable() -> tuple[CacheManager, CacheSequence]:
    """Two groups, something cached, one live sequence in the middle of its prompt."""
    manager = CacheManager(group_layers([None, 6]), [20, 20], block_size=4, max_chunk=16)
    past = manager.open([*range(8), 1, 2, 3, 4])
    assert manager.reserve(past, 12)
    manager.commit(past, 12)
    manager.close(past)
    seq = manager.open(list(range(30)))
    assert manager.reserve(seq, 8)
    manager.commit(seq, 8)
    manager.check()
    return manager, seq


def lose_a_block(manager: CacheManager, seq: CacheSequence) -> None:
    manager._allocators[0]._freed.append(99)


def free_an_owned_block(manager: CacheManager, seq: CacheSequence) -> None:
    manager._allocators[0]._freed.append(seq.tables[0][0])


def count_an_owner_too_many(manager: CacheManager, seq: CacheSequence) -> None:
    manager._allocators[1]._owners[seq.tables[1][-1]] += 1


def count_a_node_owner_too_many(manager: CacheManager, seq: CacheSequence) -> None:
    seq.path.nodes[1].num_owners += 1


def forget_a_window_block(manager: CacheManager, seq: CacheSequence) -> None:
    seq.tables[1][-1] = 0


def lose_the_queue(manager: CacheManager, seq: CacheSequence) -> None:
    manager._tree.idle[0].popitem()


def queue_an_owned_node(manager: CacheManager, seq: CacheSequence) -> None:
    manager._tree.idle[1][seq.path.nodes[-1]] = None


def swap_a_block(manager: CacheManager, seq: CacheSequence) -> None:
    seq.tables[0][0], seq.tables[0][1] = seq.tables[0][1], seq.tables[0][0]


def forget_a_promise(manager: CacheManager, seq: CacheSequence) -> None:
    seq.path.promised.pop()


def keep_the_promise_of_one_who_is_gone(manager: CacheManager, seq: CacheSequence) -> None:
    manager._live.remove(seq)


def change_a_token(manager: CacheManager, seq: CacheSequence) -> None:
    seq.tokens[3] = 77


def file_a_child_elsewhere(manager: CacheManager, seq: CacheSequence) -> None:
    top = seq.path.nodes[0]
    top.children[9, 9, 9, 9] = top.children.pop(seq.path.nodes[1].key)


def miscount_cached(manager: CacheManager, seq: CacheSequence) -> None:
    manager._allocators[0].num_cached -= 1


def leave_a_root(manager: CacheManager, seq: CacheSequence) -> None:
    manager._tree.enter("", "nobody")


@pytest.mark.parametrize(
    "damage",
    [
        lose_a_block,
        free_an_owned_block,
        count_an_owner_too_many,
        count_a_node_owner_too_many,
        forget_a_window_block,
        lose_the_queue,
        queue_an_owned_node,
        swap_a_block,
        forget_a_promise,
        keep_the_promise_of_one_who_is_gone,
        change_a_token,
        file_a_child_elsewhere,
        miscount_cached,
        leave_a_root,
    ],
)
def test_damage_is_noticed(damage: Callable[[CacheManager, CacheSequence], None]) -> None:
    manager, seq = breakable()
    damage(manager, seq)
    with pytest.raises(AssertionError):
        manager.check()


def test_children_must_stand_before_their_parents_in_the_queue() -> None:
    manager, seq = breakable()
    manager.close(seq)
    manager.check()
    queue = manager._tree.idle[0]
    queue.move_to_end(next(iter(queue)))
    with pytest.raises(AssertionError, match="evicted after its parent"):
        manager.check()
