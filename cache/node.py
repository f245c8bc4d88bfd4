"""What the prefix tree is made of: nodes, and the path of one live sequence through them. Plain data, no rules."""

from collections import deque

from cache.blocks import NULL_BLOCK

Tokens = tuple[int, ...]


class Node:
    """One full block of tokens after everything above it."""

    __slots__ = ("blocks", "children", "computed", "depth", "key", "num_owners", "parent", "promised_by")

    def __init__(self, parent: "Node | None", key: Tokens, num_groups: int) -> None:
        self.parent = parent  # None: a root, or no longer in the tree
        self.key = key
        self.depth: int = parent.depth + 1 if parent else 0
        self.children: dict[Tokens, Node] = {}
        self.blocks = [NULL_BLOCK] * num_groups
        self.computed = False
        self.promised_by: Path | None = None
        self.num_owners = 0  # live sequences that have passed this node

    @property
    def complete(self) -> bool:
        """Computed and none of its blocks evicted: who stands at its parent can always take it."""
        return self.computed and NULL_BLOCK not in self.blocks


class Root(Node):
    """Where all prefixes of one (namespace, salt) begin. Depth 0, no tokens, no blocks."""

    __slots__ = ("name",)

    def __init__(self, name: tuple[str, str], num_groups: int) -> None:
        super().__init__(None, (), num_groups)
        self.name = name


class Path:
    """One live sequence's place in the tree."""

    __slots__ = ("authored", "donated", "nodes", "promised", "root")

    def __init__(self, root: Root) -> None:
        self.root = root
        self.nodes: list[Node] = []  # owned, nodes[i] is the sequence's i-th block
        self.promised: deque[Node] = deque()  # the chain right below nodes[-1]
        self.authored: list[Node] = []  # nodes that this sequence computed first
        self.donated: list[tuple[Node, int, int]] = []  # (node, group, block) given to nodes that had lost theirs

    @property
    def tip(self) -> Node:
        """The deepest node that the sequence owns."""
        return self.nodes[-1] if self.nodes else self.root
