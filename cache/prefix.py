"""Which prefixes are in the cache: a tree of full blocks of tokens. Knows block ids, no tensors, no steps.

A node is one full block of tokens below a root (namespace, salt). It is found by (parent node, exact tokens), never
by a block id or a hash alone. It holds one block per KV group: always one of the full group once it is computed; the
ones of windowed groups come and go, which only makes later matches shorter.

A node is promised while a live sequence is about to compute it, so that others can wait instead of computing the
same. The nodes that one sequence has promised are a chain without gaps that begins right below the last node it
owns. Hence:

    Whoever waits has promised nothing (its next node is somebody else's promise, so its own chain is empty), and
    nobody ever waits for somebody who waits. There is no deadlock, and when a promise is withdrawn (its sequence
    was cancelled, preempted or failed) the first waiter that reserves makes it anew.

Ownerless blocks wait for reuse in one queue per group, oldest first. A sequence owns a node only together with all
ancestors, and lets them go deepest first; so in the full group's queue children always stand before their parents,
its head is always a leaf, and least recently used needs no search.
"""

from collections import OrderedDict
from collections.abc import Sequence

from cache.blocks import NULL_BLOCK, BlockAllocator
from cache.node import Node, Path, Root, Tokens


class PrefixTree:
    """The nodes of all roots and the queues of blocks that nobody owns.

    windows[g] is group g's window, None for the one full group. A model may have no full group; then a node stays as
    long as it or a descendant has a block.
    """

    def __init__(self, windows: Sequence[int | None], allocators: Sequence[BlockAllocator], block_size: int) -> None:
        self.windows = tuple(windows)
        self.allocators = tuple(allocators)
        self.block_size = block_size
        self.roots: dict[tuple[str, str], Root] = {}
        self.idle: tuple[OrderedDict[Node, None], ...] = tuple(OrderedDict() for _ in windows)  # oldest first
        self._windowed = tuple((g, window) for g, window in enumerate(windows) if window is not None)

    # -- a sequence moves through the tree

    def enter(self, namespace: str, salt: str) -> Path:
        """A new path that stands at the root of (namespace, salt)."""
        name = (namespace, salt)
        root = self.roots.get(name)
        if root is None:
            root = self.roots[name] = Root(name, len(self.windows))
        root.num_owners += 1
        return Path(root)

    def find(self, path: Path, tokens: Sequence[int], max_depth: int) -> list[Node]:
        """The computed nodes that continue the path, up to the deepest from which a sequence could go on.

        Going on at depth d needs, of each windowed group, every block that the token at d * block_size can see. What
        lies above the path's tip the sequence holds itself.
        """
        node, found = path.tip, list[Node]()
        for index in range(len(path.nodes), max_depth):
            child = node.children.get(self._key(tokens, index))
            if child is None or not child.computed:
                break
            node = child
            found.append(node)
        return found[: self._num_usable(found, len(path.nodes))]

    def own(self, path: Path, node: Node) -> None:
        """The path's tip moves to this child of it. The caller sees to the blocks."""
        if path.promised:
            assert path.promised[0] is node, f"promised depth {path.promised[0].depth}, went to {node.depth}"
            path.promised.popleft().promised_by = None
        node.num_owners += 1
        path.nodes.append(node)

    def grow(self, path: Path, tokens: Sequence[int], mine: Sequence[int]) -> Node:
        """The sequence has computed its next full block into `mine` (one block per group): the path moves on.

        Returns the node, whose blocks the sequence owns from now on instead of its own. Where the node had a block
        already, the sequence's is freed; where it had none, it keeps the sequence's.
        """
        key = self._key(tokens, len(path.nodes))
        node = path.tip.children.get(key) or self._add(path.tip, key)
        self.own(path, node)
        if not node.computed:
            node.computed = True
            path.authored.append(node)
        else:
            path.donated += [(node, g, mine[g]) for g, block in enumerate(node.blocks) if block == NULL_BLOCK]
        for group, block in enumerate(node.blocks):
            if block == NULL_BLOCK:
                self.allocators[group].keep(mine[group])
                node.blocks[group] = mine[group]
            else:
                self.hold(node, group)
                self.allocators[group].release(mine[group])
        return node

    def promise(self, path: Path, tokens: Sequence[int], num_tokens: int) -> None:
        """Promise the full blocks of tokens[:num_tokens] below the tip, as far as nobody else has promised them."""
        node = path.promised[-1] if path.promised else path.tip
        for index in range(node.depth, num_tokens // self.block_size):
            key = self._key(tokens, index)
            node = node.children.get(key) or self._add(node, key)
            if node.promised_by is not None:
                return
            node.promised_by = path
            path.promised.append(node)

    def awaits(self, path: Path, tokens: Sequence[int]) -> bool:
        """Whether somebody else is about to compute the next full block."""
        child = path.tip.children.get(self._key(tokens, len(path.nodes)))
        return child is not None and child.promised_by not in (None, path) and not child.complete

    def withdraw(self, path: Path, *, depth: int = 0) -> None:
        """Take back the path's promises at this depth and below. Nodes that nobody has computed vanish."""
        while path.promised and path.promised[-1].depth >= depth:
            node = path.promised.pop()
            node.promised_by = None
            self._prune(node)

    # -- blocks of nodes

    def hold(self, node: Node, group: int) -> int:
        """One more owner for the node's block of this group, which is returned."""
        block = node.blocks[group]
        if self.allocators[group].share(block):
            del self.idle[group][node]
        return block

    def let_go(self, node: Node | None, group: int, block: int) -> None:
        """One owner less for a block of this group. node is where the tree keeps it, if it does."""
        if self.allocators[group].release(block):
            assert node is not None, f"block {block} is kept, but not by a node of this sequence"
            assert node.blocks[group] == block, f"block {block} is kept, but its node has {node.blocks[group]}"
            self.idle[group][node] = None

    def let_go_all(self, path: Path, group: int, table: Sequence[int]) -> None:
        """One owner less for every block of a table, deepest first."""
        nodes = path.nodes
        for index in range(len(table) - 1, -1, -1):
            if table[index] != NULL_BLOCK:
                self.let_go(nodes[index] if index < len(nodes) else None, group, table[index])

    def step_back(self, path: Path) -> list[tuple[int, int]]:
        """The path's tip moves up to its parent. The caller has let go of the blocks.

        Returns blocks that were freed because they are not trusted, as (group, block).
        """
        node = path.nodes.pop()
        node.num_owners -= 1
        if node.parent is None and not node.num_owners:
            return self.remove(node)  # it was cut off by distrust
        self._prune(node)
        return []

    def leave(self, path: Path) -> None:
        """The sequence is gone; its path stands at the root again."""
        assert not path.nodes, f"{len(path.nodes)} nodes left"
        assert not path.promised, f"{len(path.promised)} promises left"
        path.root.num_owners -= 1
        self._prune(path.root)

    def evict(self, group: int) -> None:
        """Free the block of this group that nobody has owned for the longest time.

        In the full group that is a leaf, and the node goes with it. (It may have promised children: a sequence that
        recomputes this node for the sake of a windowed group. Those promises are withdrawn.)
        """
        node = next(iter(self.idle[group]))
        if self.windows[group] is None:
            self.remove(node)
        else:
            self._drop_block(node, group)
            self._prune(node)

    def remove(self, node: Node) -> list[tuple[int, int]]:
        """Forget an ownerless node and everything below it. Returns the blocks freed, as (group, block).

        Promises below an ownerless node are one chain that runs through it: whoever made them owns nothing there.
        """
        self._revoke(node)
        parent, pending, freed = node.parent, [node], []
        self._unlink(node)
        while pending:
            gone = pending.pop()
            assert not gone.num_owners, f"depth {gone.depth} still has {gone.num_owners} owners"
            assert not gone.promised_by, f"depth {gone.depth} is still promised"
            for group, block in enumerate(gone.blocks):
                if block != NULL_BLOCK:
                    freed.append((group, block))
                    self._drop_block(gone, group)
            pending += gone.children.values()
            gone.children, gone.parent = {}, None
        if parent is not None:
            self._prune(parent)
        return freed

    def distrust(self, path: Path) -> list[tuple[int, int]]:
        """What this sequence computed must not be found again. It has let go of everything already.

        Nodes that nobody owns are removed with all that was computed on top of them; nodes that others own are cut
        off from the tree and removed when the last owner leaves. Returns the blocks freed, as (group, block).
        """
        freed: list[tuple[int, int]] = []
        for node in path.authored:
            if node.parent is None:
                continue
            if node.num_owners:
                self._revoke(node)
                self._unlink(node)
            else:
                freed += self.remove(node)
        for node, group, block in path.donated:
            if node.blocks[group] == block:
                self._drop_block(node, group)
                freed += [(group, block)] if not self.allocators[group].owners(block) else []
                self._prune(node)
        return freed

    # -- inside

    def _num_usable(self, nodes: Sequence[Node], num_above: int) -> int:
        """How many of these nodes, which lie below num_above others, lead to a place where a sequence could go on."""
        num, gap = len(nodes), self._last_gap(nodes, num_above, len(nodes))
        while gap < num:  # whatever ends behind the gap needs the missing block too
            num, gap = gap, self._last_gap(nodes, num_above, gap)
        return num

    def _last_gap(self, nodes: Sequence[Node], num_above: int, num: int) -> int:
        """Index of a node among nodes[:num] without a block that the next token sees; num if there is none."""
        for group, window in self._windowed:
            first = first_visible((num_above + num) * self.block_size, window, self.block_size) - num_above
            for index in range(num - 1, max(first, 0) - 1, -1):
                if nodes[index].blocks[group] == NULL_BLOCK:
                    return index
        return num

    def _key(self, tokens: Sequence[int], index: int) -> Tokens:
        return tuple(tokens[index * self.block_size : (index + 1) * self.block_size])

    def _add(self, parent: Node, key: Tokens) -> Node:
        assert len(key) == self.block_size, f"{len(key)} tokens are not a full block of {self.block_size}"
        node = parent.children[key] = Node(parent, key, len(self.windows))
        return node

    def _unlink(self, node: Node) -> None:
        if node.parent is not None:
            del node.parent.children[node.key]
            node.parent = None

    def _drop_block(self, node: Node, group: int) -> None:
        self.allocators[group].drop(node.blocks[group])
        node.blocks[group] = NULL_BLOCK
        self.idle[group].pop(node, None)

    def _revoke(self, node: Node) -> None:
        """The node goes: the promise to compute it is void, and those that follow it in the same chain."""
        if node.promised_by is not None:
            self.withdraw(node.promised_by, depth=node.depth)

    def _prune(self, node: Node) -> None:
        """Forget a node that serves nothing, and its ancestors if they served only as a way to it."""
        here: Node | None = node
        while here is not None and not (here.children or here.num_owners or here.promised_by or any(here.blocks)):
            parent = here.parent
            if isinstance(here, Root):
                self.roots.pop(here.name, None)
            self._unlink(here)
            here = parent


def first_visible(position: int, window: int, block_size: int) -> int:
    """Index of the first block that a token at this position sees under a window (itself included).

    >>> first_visible(position=32, window=17, block_size=16)  # sees 16 .. 32
    1
    """
    return max(0, position - window + 1) // block_size
