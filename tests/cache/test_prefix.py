"""The tree's own rules: exact tokens, chains of promises, the order of eviction, nothing left behind."""

import pytest

from cache.blocks import BlockAllocator
from cache.node import Path, Root
from cache.prefix import PrefixTree, first_visible


def make_tree(windows: tuple[int | None, ...] = (None,)) -> PrefixTree:
    return PrefixTree(windows, [BlockAllocator(20) for _ in windows], 2)


def grow(tree: PrefixTree, path: Path, tokens: list[int]) -> None:
    """Compute all full blocks of tokens that the path does not own."""
    while (len(path.nodes) + 1) * 2 <= len(tokens):
        tree.grow(path, tokens, [allocator.take() for allocator in tree.allocators])


def leave(tree: PrefixTree, path: Path) -> None:
    tree.withdraw(path)
    while path.nodes:
        node = path.tip
        for group, block in enumerate(node.blocks):
            tree.let_go(node, group, block)
        tree.step_back(path)
    tree.leave(path)


@pytest.mark.parametrize(
    ("position", "window", "expected"),
    [(0, 1, 0), (5, 100, 0), (16, 1, 1), (16, 2, 0), (17, 2, 1), (32, 17, 1), (31, 17, 0), (47, 16, 2), (48, 16, 2)],
)
def test_the_first_visible_block_holds_the_first_visible_position(position: int, window: int, expected: int) -> None:
    assert first_visible(position, window, 16) == expected
    assert expected == max(0, position - window + 1) // 16


def test_a_path_grows_node_by_node_and_stays_found_after_it_left() -> None:
    tree = make_tree()
    path = tree.enter("", "")
    grow(tree, path, [1, 2, 3, 4, 5])
    assert [node.key for node in path.nodes] == [(1, 2), (3, 4)]
    leave(tree, path)
    newcomer = tree.enter("", "")
    assert [node.depth for node in tree.find(newcomer, [1, 2, 3, 4, 5], 2)] == [1, 2]
    assert [node.depth for node in tree.find(newcomer, [1, 2, 3, 4, 5], 1)] == [1]
    assert tree.find(newcomer, [1, 3, 3, 4, 5], 2) == []


def test_promises_are_a_chain_that_stops_at_somebody_elses() -> None:
    tree = make_tree()
    first, second = tree.enter("", ""), tree.enter("", "")
    tree.promise(first, [1, 2, 3, 4, 5], 5)
    assert [node.key for node in first.promised] == [(1, 2), (3, 4)]
    tree.promise(second, [1, 2, 9, 9], 4)
    assert not second.promised
    assert tree.awaits(second, [1, 2, 9, 9])
    assert not tree.awaits(first, [1, 2, 3, 4, 5])
    tree.promise(first, [1, 2, 3, 4, 5, 6], 6)
    assert len(first.promised) == 3


def test_whoever_waits_has_promised_nothing() -> None:
    """The heart of the argument that there is no deadlock, on every pair of short prompts."""
    prompts = [[a, a, b, b, c, c] for a in (1, 2) for b in (1, 2) for c in (1, 2)]
    for one in prompts:
        for other in prompts:
            tree = make_tree()
            first, second = tree.enter("", ""), tree.enter("", "")
            tree.promise(first, one, 6)
            tree.promise(second, other, 6)
            assert not (tree.awaits(second, other) and second.promised)
            assert not (tree.awaits(first, one) and tree.awaits(second, other))


def test_computing_a_node_keeps_its_promise_until_passing_it() -> None:
    tree = make_tree()
    path = tree.enter("", "")
    tree.promise(path, [1, 2, 3, 4], 4)
    tree.grow(path, [1, 2, 3, 4], [tree.allocators[0].take()])
    assert [node.key for node in path.promised] == [(3, 4)]
    assert path.nodes[0].promised_by is None


def test_withdrawn_promises_leave_no_nodes_and_no_root() -> None:
    tree = make_tree()
    path = tree.enter("", "")
    tree.promise(path, list(range(8)), 8)
    tree.withdraw(path)
    assert not path.root.children
    tree.leave(path)
    assert not tree.roots


def test_promises_are_withdrawn_from_a_depth_on() -> None:
    tree = make_tree()
    path = tree.enter("", "")
    tree.promise(path, list(range(8)), 8)
    tree.withdraw(path, depth=3)
    assert [node.depth for node in path.promised] == [1, 2]
    assert not path.promised[-1].children


def test_somebody_who_did_not_wait_may_compute_a_promised_node() -> None:
    tree = make_tree()
    owner, other = tree.enter("", ""), tree.enter("", "")
    tree.promise(owner, [1, 2, 3, 4], 4)
    grow(tree, other, [1, 2])
    assert owner.promised[0] is other.nodes[0]
    assert not tree.awaits(tree.enter("", ""), [1, 2, 3, 4])  # it is there: match, do not wait
    leave(tree, owner)
    assert other.nodes[0].computed


def test_the_queue_of_the_full_group_is_oldest_first_with_children_before_parents() -> None:
    tree = make_tree()
    for tokens in ([1, 1, 2, 2], [1, 1, 3, 3], [4, 4]):
        path = tree.enter("", "")
        for node in tree.find(path, tokens, 2):
            tree.hold(node, 0)
            tree.own(path, node)
        grow(tree, path, tokens)
        leave(tree, path)
    assert [node.key for node in tree.idle[0]] == [(2, 2), (3, 3), (1, 1), (4, 4)]


def test_evicting_a_window_block_leaves_the_node() -> None:
    tree = make_tree((None, 4))
    path = tree.enter("", "")
    grow(tree, path, [1, 2, 3, 4])
    leave(tree, path)
    tree.evict(1)
    newcomer = tree.enter("", "")
    assert len(tree.find(newcomer, [1, 2, 3, 4, 5], 2)) == 1, "the deepest lost its window, its parent did not"
    assert tree.allocators[0].num_cached == 2


def test_a_removed_node_frees_every_groups_block_and_all_below_it() -> None:
    tree = make_tree((None, 4))
    path = tree.enter("", "")
    grow(tree, path, [1, 2, 3, 4])
    top = path.nodes[0]
    leave(tree, path)
    assert sorted(tree.remove(top)) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert [allocator.num_free for allocator in tree.allocators] == [19, 19]
    assert not tree.roots


def test_a_root_knows_its_name() -> None:
    tree = make_tree()
    root = tree.enter("space", "salt").root
    assert isinstance(root, Root)
    assert (root.name, root.depth, root.num_owners) == (("space", "salt"), 0, 1)
