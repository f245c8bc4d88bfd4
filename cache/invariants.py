"""What must hold of the cache between any two calls, recomputed from scratch. For tests; O(everything)."""

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Protocol

from cache.blocks import NULL_BLOCK, BlockAllocator
from cache.node import Node, Path
from cache.prefix import PrefixTree, first_visible


class LiveSequence(Protocol):
    """The part of `cache.manager.CacheSequence` that is looked at."""

    num_computed: int
    tokens: list[int]
    path: Path
    tables: tuple[list[int], ...]


def check_cache(tree: PrefixTree, live: Collection[LiveSequence], *, prefix_cache: bool) -> None:
    """Assert that free lists, owner counts, tree, queues, promises and tables agree with each other."""
    nodes = _all_nodes(tree, live)
    for group, allocator in enumerate(tree.allocators):
        _check_blocks(group, allocator, nodes, live)
        _check_queue(tree, group, nodes)
    for node in nodes:
        _check_node(tree, node, live)
    for seq in live:
        _check_sequence(tree, seq, prefix_cache=prefix_cache)
    owners = Counter(id(seq.path.root) for seq in live)
    for key, root in tree.roots.items():
        assert root.name == key, f"root {root.name} filed under {key}"
        assert root.num_owners == owners[id(root)], f"root {key}: {root.num_owners} owners, {owners[id(root)]} live"
        assert root.num_owners or root.children, f"root {key} serves nothing"


def _all_nodes(tree: PrefixTree, live: Iterable[LiveSequence]) -> list[Node]:
    """Every node below a root, and those that were cut off but still have owners."""
    pending = [child for root in tree.roots.values() for child in root.children.values()]
    pending += [node for seq in live for node in seq.path.nodes if node.parent is None]
    seen: dict[int, Node] = {}
    while pending:
        node = pending.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            pending += node.children.values()
    return list(seen.values())


def _check_blocks(group: int, allocator: BlockAllocator, nodes: Iterable[Node], live: Iterable[LiveSequence]) -> None:
    where = f"group {group}"
    owners = Counter(block for seq in live for block in seq.tables[group] if block != NULL_BLOCK)
    kept = Counter(node.blocks[group] for node in nodes if node.blocks[group] != NULL_BLOCK)
    free = Counter(allocator.free_blocks())
    cached = 0
    assert NULL_BLOCK not in free, f"{where}: the null block is in the free list"
    for block in range(1, allocator.num_blocks):
        assert allocator.owners(block) == owners[block], (
            f"{where} block {block}: {allocator.owners(block)} owners counted, {owners[block]} tables hold it"
        )
        assert kept[block] <= 1, f"{where} block {block}: in {kept[block]} nodes"
        assert allocator.is_kept(block) == bool(kept[block]), f"{where} block {block}: kept, but in no node, or reverse"
        expected = 0 if owners[block] or kept[block] else 1
        assert free[block] == expected, f"{where} block {block}: {free[block]} times free, expected {expected}"
        cached += bool(kept[block]) and not owners[block]
    used, total = len(owners), allocator.num_blocks - 1
    counted = (allocator.num_used, allocator.num_cached, allocator.num_free)
    assert counted == (used, cached, len(free)), f"{where}: counts {counted}, recomputed {(used, cached, len(free))}"
    assert sum(counted) == total, f"{where}: {counted} do not sum to {total}"


def _check_queue(tree: PrefixTree, group: int, nodes: Iterable[Node]) -> None:
    """The queue holds exactly the nodes whose block nobody owns; in the full group children before parents."""
    allocator, queue = tree.allocators[group], list(tree.idle[group])
    ownerless = {id(n) for n in nodes if n.blocks[group] != NULL_BLOCK and not allocator.owners(n.blocks[group])}
    assert {id(node) for node in queue} == ownerless, f"group {group}: queue and ownerless blocks differ"
    if tree.windows[group] is not None:
        return
    place = {id(node): index for index, node in enumerate(queue)}
    for node in queue:
        for child in node.children.values():
            before = not child.computed or place[id(child)] < place[id(node)]
            assert before, f"a child at depth {child.depth} would be evicted after its parent"


def _check_node(tree: PrefixTree, node: Node, live: Iterable[LiveSequence]) -> None:
    where = f"node at depth {node.depth}"
    passed = sum(len(seq.path.nodes) >= node.depth and seq.path.nodes[node.depth - 1] is node for seq in live)
    assert node.num_owners == passed, f"{where}: {node.num_owners} owners counted, {passed} live sequences passed it"
    assert len(node.key) == tree.block_size, f"{where}: {len(node.key)} tokens in a block of {tree.block_size}"
    for key, child in node.children.items():
        assert (child.key, child.depth) == (key, node.depth + 1), f"{where}: a strange child"
        assert child.parent is node, f"{where}: a child has another parent"
    if node.promised_by is not None:
        assert any(seq.path is node.promised_by for seq in live), f"{where}: promised by a sequence that is gone"
        assert any(promised is node for promised in node.promised_by.promised), f"{where}: its promiser forgot it"
    if not node.computed:
        assert node.promised_by is not None, f"{where}: neither computed nor promised"
        assert (node.num_owners, any(node.blocks)) == (0, False), f"{where}: not computed, but owned or with blocks"
    for group, window in enumerate(tree.windows):
        if window is None and node.computed:
            owners = tree.allocators[group].owners(node.blocks[group])
            assert node.blocks[group] != NULL_BLOCK, f"{where}: computed without a block of the full group"
            assert owners == node.num_owners, f"{where}: {node.num_owners} owners, its block has {owners}"
    assert any(node.blocks) or node.children or node.num_owners or node.promised_by, f"{where} serves nothing"


def _check_sequence(tree: PrefixTree, seq: LiveSequence, *, prefix_cache: bool) -> None:
    size, path = tree.block_size, seq.path
    num_full = seq.num_computed // size if prefix_cache else 0
    assert len(path.nodes) == num_full, f"{len(path.nodes)} nodes for {seq.num_computed} computed tokens"
    assert seq.num_computed <= len(seq.tokens), f"{seq.num_computed} computed of {len(seq.tokens)} tokens"
    chain = [path.root, *path.nodes, *path.promised]
    for above, node in pairwise(chain):
        assert node.parent is above or node.parent is None, f"the path breaks at depth {node.depth}"
        start = (node.depth - 1) * size
        assert node.key == tuple(seq.tokens[start : start + size]), f"other tokens at depth {node.depth}"
    for node in path.nodes:
        assert node.computed, f"owns an uncomputed node at depth {node.depth}"
    for node in path.promised:
        assert node.promised_by is path, f"the promise at depth {node.depth} is somebody else's"
    assert len({len(table) for table in seq.tables}) == 1, f"tables of {[len(table) for table in seq.tables]} blocks"
    for group, window in enumerate(tree.windows):
        table = seq.tables[group]
        first = 0 if window is None else first_visible(seq.num_computed, window, size)
        assert len(table) * size >= seq.num_computed, f"group {group}: table of {len(table)} blocks too short"
        for index, block in enumerate(table):
            there = block != NULL_BLOCK
            assert there == (index >= first), f"group {group} entry {index} is {block}, the window begins at {first}"
            if there and index < num_full and tree.allocators[group].is_kept(block):
                its = path.nodes[index].blocks[group]
                assert block == its, f"group {group} entry {index}: block {block}, its node has {its}"
