"""What is offered is copied in small portions and written behind; what is read is what was written, or nothing."""

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cache import disk as disk_module
from cache.directory import BlockDirectory
from cache.disk import Bytes, DiskCache, Load
from cache.node import Node
from cache.record import Names
from tests.helpers.on_disk import ROOMY, files_in, hold
from tests.helpers.waiting import eventually_blocking as until

SIZE = 4


class FakePool:
    """Two groups of ten blocks of five bytes, all different."""

    def __init__(self) -> None:
        self.memory = [np.arange(50, dtype=np.uint8).reshape(10, 5) + 100 * group for group in range(2)]

    def bytes_of_blocks(self) -> int:
        return 10

    def export_blocks(self, blocks: Sequence[Sequence[int]]) -> Bytes:
        return np.concatenate([plane[list(ids)] for plane, ids in zip(self.memory, blocks, strict=True)], axis=1)

    def import_blocks(self, blocks: Sequence[Sequence[int]], data: Bytes) -> None:
        for group, ids in enumerate(blocks):
            self.memory[group][list(ids)] = data[:, 5 * group : 5 * group + 5]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], DiskCache]]:
    caches: list[DiskCache] = []

    def make() -> DiskCache:
        caches.append(DiskCache(BlockDirectory(tmp_path, ROOMY), FakePool(), block_size=SIZE, form=["f"]))
        return caches[-1]

    yield make
    for each in caches:
        each.close()


def chain(count: int, first: int = 1) -> list[Node]:
    """Nodes of a tree, each the child of the one before, in blocks first, first + 1 ... of both groups."""
    nodes = [Node(None, (), 2)]
    for index in range(count):
        node = Node(nodes[-1], (index,) * SIZE, 2)
        node.blocks, node.computed = [first + index, first + index], True
        nodes.append(node)
    return nodes[1:]


def loaded(disk: DiskCache, names: Names, start: int, count: int) -> Load:
    load = disk.load(names, start, count)
    until(lambda: load.done)
    return load


def keep(disk: DiskCache, names: Names, nodes: Sequence[Node]) -> None:
    disk.offer(names, nodes)
    while disk.wants_pump:
        disk.pump()
        disk.news()


TOKENS = list(range(13))


def test_what_was_offered_is_read_after_a_restart_into_other_blocks(opened: Callable[[], DiskCache]) -> None:
    first = opened()
    keep(first, first.names(TOKENS, "", ""), chain(3))
    first.close()
    second = opened()
    names = second.names(TOKENS, "", "")
    assert second.count(names, 0, 3) == 3
    load = loaded(second, names, 1, 2)
    assert (load.got, load.refused) == (2, False)
    second.fill(load, 1, [[8, 9], [7, 8]])
    pool: Any = second._pool
    sound = FakePool()
    assert (pool.memory[0][[8, 9]] == sound.memory[0][[2, 3]]).all()
    assert (pool.memory[1][[7, 8]] == sound.memory[1][[2, 3]]).all()


def test_other_roots_find_nothing(opened: Callable[[], DiskCache]) -> None:
    disk = opened()
    keep(disk, disk.names(TOKENS, "alice", ""), chain(3))
    until(lambda: disk.count(disk.names(TOKENS, "alice", ""), 0, 3) == 3)
    for root in (("", ""), ("bob", ""), ("alice", "salt")):
        assert disk.count(disk.names(TOKENS, *root), 0, 3) == 0


def test_a_step_copies_a_bounded_number_of_blocks(
    opened: Callable[[], DiskCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = opened()
    monkeypatch.setattr(disk_module, "COPY_BYTES", 25)
    asked: list[int] = []
    pool: Any = disk._pool
    export = pool.export_blocks
    monkeypatch.setattr(pool, "export_blocks", lambda blocks: (asked.append(len(blocks[0])), export(blocks))[1])
    disk.offer(disk.names(list(range(40)), "", ""), chain(7))
    while disk.wants_pump:
        disk.pump()
        disk.news()
    assert asked == [2, 2, 2, 1]


def test_a_slow_disk_stops_the_copying_and_never_the_caller(
    opened: Callable[[], DiskCache], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = opened()
    go, writing = threading.Event(), threading.Event()
    write = disk._directory.write

    def slowly(*given: Any) -> bool:
        writing.set()
        go.wait()
        return write(*given)

    monkeypatch.setattr(disk._directory, "write", slowly)
    monkeypatch.setattr(disk_module, "QUEUE_BYTES", 30)
    woken = threading.Semaphore(0)
    disk.on_change(woken.release)
    disk.offer(disk.names(list(range(40)), "", ""), chain(9))
    while disk.wants_pump:
        disk.pump()
    writing.wait()
    left = len(disk._pending)
    go.set()
    assert left == 6, "three blocks of ten bytes were copied; there is no room for a fourth"
    woken.acquire()
    until(lambda: disk.wants_pump)
    while disk._pending:
        disk.pump()
    until(lambda: len(files_in(tmp_path)) == 9)


def test_what_was_evicted_before_it_was_copied_is_left_out(opened: Callable[[], DiskCache], tmp_path: Path) -> None:
    disk = opened()
    nodes = chain(4)
    disk.offer(disk.names(list(range(20)), "", ""), nodes)
    nodes[1].parent = None
    nodes[2].blocks[1] = 0
    disk.pump()
    until(lambda: len(files_in(tmp_path)) == 2 and not disk._shared.busy)
    names = disk.names(list(range(20)), "", "")
    assert [disk.count(names, index, 1) for index in range(4)] == [1, 0, 0, 1]


def test_a_block_is_written_once_however_often_it_is_offered(opened: Callable[[], DiskCache], tmp_path: Path) -> None:
    disk = opened()
    names, nodes = disk.names(TOKENS, "", ""), chain(3)
    for _ in range(3):
        disk.offer(names, nodes)
    disk.pump()
    until(lambda: len(files_in(tmp_path)) == 3 and not disk._shared.busy)
    disk.offer(names, nodes)
    assert not disk._pending
    assert disk.news()[1].written == 3


def test_an_older_prefix_outlives_what_builds_on_it(opened: Callable[[], DiskCache], tmp_path: Path) -> None:
    disk = opened()
    names = disk.names(TOKENS, "", "")
    keep(disk, names, chain(3))
    until(lambda: len(files_in(tmp_path)) == 3 and not disk._shared.busy)
    disk.offer(names, chain(3))
    until(lambda: not (disk._shared.busy or disk._shared.jobs))
    folder = files_in(tmp_path)[0].parent
    times = [(folder / names[index]).stat().st_mtime_ns for index in range(3)]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 3


def test_what_is_not_to_be_trusted_is_removed_and_no_longer_copied(
    opened: Callable[[], DiskCache], tmp_path: Path
) -> None:
    disk = opened()
    names, nodes = disk.names(TOKENS, "", ""), chain(3)
    disk.offer(names, nodes[:2])
    disk.pump()
    until(lambda: len(files_in(tmp_path)) == 2)
    disk.offer(names, nodes)
    disk.forget(names, 3)
    disk.pump()
    until(lambda: not files_in(tmp_path))
    assert disk.count(names, 0, 3) == 0


def test_a_bad_block_ends_the_read_is_counted_and_removed(opened: Callable[[], DiskCache], tmp_path: Path) -> None:
    disk = opened()
    names = disk.names(TOKENS, "", "")
    keep(disk, names, chain(3))
    until(lambda: len(files_in(tmp_path)) == 3)
    bad = files_in(tmp_path)[0].parent / names[1]
    bad.write_bytes(bad.read_bytes()[:-1])
    load = loaded(disk, names, 0, 3)
    assert (load.got, load.refused) == (1, True)
    assert not bad.exists()
    until(lambda: not disk._shared.busy)
    assert disk.news()[1].refused == 1
    assert disk.count(names, 0, 3) == 1


def test_a_full_disk_is_said_once_and_reads_go_on(
    opened: Callable[[], DiskCache], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = opened()
    names = disk.names(TOKENS, "", "")
    keep(disk, names, chain(1))
    until(lambda: len(files_in(tmp_path)) == 1)

    def full(*given: Any) -> bool:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(disk._directory, "write", full)
    keep(disk, names, chain(3))
    until(lambda: "no space left" in disk.news()[2])
    assert loaded(disk, names, 0, 1).got == 1


def test_a_load_that_was_dropped_reads_no_further(opened: Callable[[], DiskCache]) -> None:
    disk = opened()
    names = disk.names(TOKENS, "", "")
    keep(disk, names, chain(3))
    gate = hold(disk)
    load = disk.load(names, 0, 3)
    load.dropped = True
    gate.set()
    until(lambda: load.done)
    assert load.got == 0
