"""Blocks that outlive the process: copied behind the hot path, written and read on a thread of its own.

Everything but the thread's own work is called by the thread that owns the pool and the tree, and none of it waits for
the disk. A block that a sequence ends with waits in line as its tree node; some are copied at each `pump`, as long as
the writer keeps up, and a node that was evicted meanwhile is left out. Reads go before writes.

Knows nodes, names and bytes; no scheduling, no requests.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import time_ns
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cache.directory import BlockDirectory
from cache.node import Node
from cache.record import BadRecord, Names, Wanted, decode, encode, root_of

COPY_BYTES = 4 * 2**20  # copied in one step, at least a block: about a millisecond
QUEUE_BYTES = 64 * 2**20  # copied, but not yet written
MOST_PENDING = 16_384  # nodes that wait to be copied; more are left out

Bytes = NDArray[np.uint8]


class BlockBytes(Protocol):
    """The memory of the blocks; `cache.pool.KVPool`."""

    def bytes_of_blocks(self) -> int: ...

    def export_blocks(self, blocks: Sequence[Sequence[int]]) -> Bytes: ...

    def import_blocks(self, blocks: Sequence[Sequence[int]], data: Bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class DiskCounts:
    """Blocks that were read, written, and refused (a file that was not what it should be)."""

    read: int = 0
    written: int = 0
    refused: int = 0


@dataclass(slots=True, eq=False)
class Load:
    """Blocks start .. start + count - 1 of a sequence, on their way from the disk.

    done: data[:got] holds them, as far as they were sound; refused: the next was not. dropped: nobody wants them.
    """

    names: Names
    start: int
    data: Bytes
    got: int = 0
    done: bool = False
    refused: bool = False
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class _Pending:
    names: Names
    index: int
    node: Node
    used_ns: int


@dataclass(slots=True)
class _Shared:
    """What both threads touch, under one condition."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    loads: deque[Load] = field(default_factory=deque)
    jobs: deque[tuple[int, Callable[[], object]]] = field(default_factory=deque)  # bytes held, what to do
    queued_bytes: int = 0
    busy: bool = False
    stopped: bool = False
    counts: DiskCounts = DiskCounts()
    warning: str = ""


class DiskCache:
    """The blocks in a folder, as one engine sees them. form: what must be equal for bytes to mean the same."""

    def __init__(self, directory: BlockDirectory, pool: BlockBytes, *, block_size: int, form: Sequence[str]) -> None:
        self._directory = directory
        self._pool = pool
        self._form = tuple(form)
        self.block_size = block_size
        self.block_bytes = pool.bytes_of_blocks()
        self._pending: deque[_Pending] = deque()
        self._pending_names: set[str] = set()
        self._shared = _Shared()
        self._wake: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
        self._thread.start()

    def on_change(self, wake: Callable[[], None]) -> None:
        """`wake` is called, on the disk's thread, after each thing that it has done."""
        self._wake = wake

    def close(self) -> None:
        """Write what was copied, and end the thread."""
        with self._shared.changed:
            self._shared.stopped = True
            self._shared.changed.notify_all()
        self._thread.join()

    def names(self, tokens: Sequence[int], namespace: str, salt: str) -> Names:
        """The names of the blocks of a sequence, which tokens belong to as they grow."""
        return Names(self._directory.key, root_of(self._form, namespace, salt), tokens, self.block_size)

    def count(self, names: Names, start: int, most: int) -> int:
        """How many blocks from `start` on are there, most of them at most."""
        end = start
        while end < start + most and names[end] in self._directory:
            end += 1
        return end - start

    # reading

    def load(self, names: Names, start: int, count: int) -> Load:
        """Begin to read. The tokens are those of now."""
        load = Load(names, start, np.empty((count, self.block_bytes), dtype=np.uint8))
        with self._shared.changed:
            self._shared.loads.append(load)
            self._shared.changed.notify_all()
        return load

    def fill(self, load: Load, first: int, blocks: Sequence[Sequence[int]]) -> None:
        """Copy what was read into the pool, from the sequence's block `first` on: n block ids per group."""
        at = first - load.start
        self._pool.import_blocks(blocks, load.data[at : at + len(blocks[0])])

    def wait(self, timeout_s: float) -> None:
        """Until the thread has done something, if it has anything to do."""
        with self._shared.changed:
            if self._shared.busy or self._shared.loads:
                self._shared.changed.wait(timeout_s)

    # writing

    def offer(self, names: Names, nodes: Sequence[Node], *, anew_from: int | None = None) -> None:
        """A sequence ended well with these blocks from its start: keep those that are not kept yet.

        anew_from: from this one on, a file was refused; those behind it were computed too, and may be as bad.
        """
        now = time_ns()
        known: list[tuple[str, int]] = []
        for index, node in enumerate(nodes):
            used_ns = now - index  # so that a block always goes before those that it builds on
            if names[index] in self._directory and (anew_from is None or index < anew_from):
                known.append((names[index], used_ns))
            elif names[index] not in self._pending_names and len(self._pending) < MOST_PENDING:
                self._pending_names.add(names[index])
                self._pending.append(_Pending(names, index, node, used_ns))
        if known:
            self._do(lambda: self._directory.touch(known))

    def forget(self, names: Names, count: int) -> None:
        """What holds these blocks is not to be trusted."""
        gone = {names[index] for index in range(count)}
        self._pending = deque(each for each in self._pending if each.names[each.index] not in gone)
        self._pending_names -= gone
        self._do(lambda: self._directory.remove(*gone))

    @property
    def wants_pump(self) -> bool:
        """Whether `pump` would do something, or there are counts that nobody has heard of while the disk rests."""
        shared = self._shared
        if self._pending:
            return self._num_room > 0
        return not (shared.busy or shared.jobs or shared.loads) and shared.counts != DiskCounts()

    def pump(self) -> None:
        """Copy some of the blocks that wait, if the writer has room."""
        batch: list[_Pending] = []
        most = min(max(COPY_BYTES // self.block_bytes, 1), self._num_room)
        while self._pending and len(batch) < most:
            pending = self._pending.popleft()
            self._pending_names.discard(pending.names[pending.index])
            if pending.node.parent is not None and pending.node.complete:
                batch.append(pending)
        if not batch:
            return
        blocks = [[each.node.blocks[group] for each in batch] for group in range(len(batch[0].node.blocks))]
        for each, data in zip(batch, self._pool.export_blocks(blocks), strict=True):
            self._do(self._writing(each, data), held=self.block_bytes)

    def news(self) -> tuple[int, DiskCounts, str]:
        """Bytes on disk, what was counted since the last call, and the first thing that ever went wrong."""
        with self._shared.changed:
            counts, self._shared.counts = self._shared.counts, DiskCounts()
        return self._directory.num_bytes, counts, self._shared.warning

    @property
    def _num_room(self) -> int:
        """How many more blocks may be copied; one at least when nothing waits to be written."""
        queued = self._shared.queued_bytes
        return max((QUEUE_BYTES - queued) // self.block_bytes, 0 if queued else 1)

    def _do(self, job: Callable[[], object], *, held: int = 0) -> None:
        with self._shared.changed:
            self._shared.queued_bytes += held
            self._shared.jobs.append((held, job))
            self._shared.changed.notify_all()

    def _writing(self, each: _Pending, data: Bytes) -> Callable[[], None]:
        """The job of writing a block. The sequence has ended, so its list of tokens stays as it is."""

        def write() -> None:
            tokens = each.names.prefix(each.index)
            parts = encode(self._directory.key, each.names.root, tokens, data.data)
            if self._directory.write(each.names[each.index], parts, each.used_ns):
                self._count(written=1)

        return write

    # the thread

    def _work(self) -> None:
        shared = self._shared
        while True:
            with shared.changed:
                shared.busy = False
                shared.changed.notify_all()
                while not (shared.loads or shared.jobs or shared.stopped):
                    shared.changed.wait()
                if not (shared.loads or shared.jobs):
                    return
                shared.busy = True
                held, job = (0, partial(self._read, shared.loads.popleft())) if shared.loads else shared.jobs.popleft()
            self._try(job)
            with shared.changed:
                shared.queued_bytes -= held
            self._wake()

    def _try(self, job: Callable[[], object]) -> None:
        """Say once what goes wrong, and go on without."""
        try:
            job()
        except Exception as error:
            with self._shared.changed:
                self._shared.warning = self._shared.warning or f"--prefix-cache-dir: blocks can't be kept: {error}"

    def _read(self, load: Load) -> None:
        try:
            for row in range(len(load.data)):
                if load.dropped or not self._read_block(load, row):
                    break
                load.got += 1
        finally:
            self._count(read=load.got)
            load.done = True

    def _read_block(self, load: Load, row: int) -> bool:
        index = load.start + row
        record = self._directory.read(load.names[index])
        if record is None:
            return False
        try:
            wanted = Wanted(load.names.root, load.names.prefix(index), self.block_bytes)
            payload = decode(self._directory.key, record, wanted)
        except BadRecord:
            self._directory.remove(load.names[index])
            load.refused = True
            self._count(refused=1)
            return False
        load.data[row] = np.frombuffer(payload, dtype=np.uint8)
        return True

    def _count(self, *, read: int = 0, written: int = 0, refused: int = 0) -> None:
        with self._shared.changed:
            was = self._shared.counts
            self._shared.counts = replace(
                was, read=was.read + read, written=was.written + written, refused=was.refused + refused
            )
