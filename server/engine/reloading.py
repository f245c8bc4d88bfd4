"""Between the scheduler and the disk: blocks of prompts that are read instead of computed, and kept when they end.

A sequence reads as it would compute: it reserves blocks, which promises them, so that others with the same prompt wait
and share; when they have been read, they are filled and committed, a bounded number of bytes a step. While it waits for
the disk the others go on. Whatever can't be read in time is computed. Knows no files, no hashes, no tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cache.disk import DiskCache, Load
from cache.manager import CacheManager
from cache.record import Names
from server.engine.generation import Generation
from server.engine.request import DiskStats

FILL_BYTES = 16 * 2**20  # copied into the cache in one step, at least a block: a few milliseconds
PATIENCE_S = 2.0  # a read that takes longer is given up
NAP_S = 0.005  # how long a step may wait for the disk when it has nothing else to do


class Reloading(Protocol):
    """What the scheduler asks."""

    @property
    def wants_step(self) -> bool: ...

    def on_change(self, wake: Callable[[], None]) -> None: ...

    def begin_step(self) -> None: ...

    def waits(self, generation: Generation, reserve: Callable[[int], bool], now: float) -> bool: ...

    def end_step(self, *, idle: bool) -> None: ...

    def leave(self, generation: Generation) -> None: ...

    def keep(self, generation: Generation) -> None: ...

    def distrust(self, generation: Generation) -> None: ...

    def stats(self) -> DiskStats | None: ...


class NoDisk:
    """Nothing is kept and nothing is found; warning says why, where it should be otherwise."""

    wants_step = False

    def __init__(self, warning: str = "") -> None:
        self._warning = warning

    def on_change(self, wake: Callable[[], None]) -> None: ...

    def begin_step(self) -> None: ...

    def waits(self, generation: Generation, reserve: Callable[[int], bool], now: float) -> bool:
        """Never."""
        return False

    def end_step(self, *, idle: bool) -> None: ...

    def leave(self, generation: Generation) -> None: ...

    def keep(self, generation: Generation) -> None: ...

    def distrust(self, generation: Generation) -> None: ...

    def stats(self) -> DiskStats | None:
        """None where nothing else was asked for."""
        return DiskStats(0, warning=self._warning) if self._warning else None


@dataclass(slots=True)
class _Reader:
    """One generation's way through the disk. load: on its way since `since`. bad_from: the first block refused."""

    names: Names
    load: Load | None = None
    since: float = 0.0
    bad_from: int | None = None


class Reloader:
    """A `Reloading` over the blocks on disk."""

    def __init__(self, manager: CacheManager, disk: DiskCache) -> None:
        self._manager = manager
        self._disk = disk
        self._readers: dict[Generation, _Reader] = {}
        self._stalled: Load | None = None  # it was given up, and the disk still works on it
        self._bytes_left = 0
        # reserve takes no more at once
        self._most_blocks = min(manager.max_chunk // disk.block_size, max(FILL_BYTES // disk.block_bytes, 1))

    @property
    def wants_step(self) -> bool:
        """Whether a step without work would get something done."""
        return self._disk.wants_pump

    def on_change(self, wake: Callable[[], None]) -> None:
        """`wake` is called, on another thread, when wants_step may have become true by itself."""
        self._disk.on_change(wake)

    def begin_step(self) -> None:
        """Between two steps blocks can be copied."""
        self._bytes_left = FILL_BYTES
        self._disk.pump()

    def waits(self, generation: Generation, reserve: Callable[[int], bool], now: float) -> bool:
        """Take what was read of its prompt, and say whether it shall wait for more. reserve may preempt it: then, too.

        Ask when it has matched what is in memory and nobody else computes its next block.
        """
        reader = self._readers.get(generation) or self._new_reader(generation)
        if reader.load is None:
            return self._begin(generation, reader, reserve, now)
        if not reader.load.done:
            if now - reader.since < PATIENCE_S:
                return True
            self._stalled = reader.load
            self._drop(reader)
            return False
        if self._bytes_left <= 0:
            return True
        if reader.load.refused and reader.bad_from is None:
            reader.bad_from = reader.load.start + reader.load.got
        self._fill(generation, reader.load)
        self._drop(reader)
        return self._begin(generation, reader, reserve, now)

    def end_step(self, *, idle: bool) -> None:
        """idle: nothing is to be run. Then wait a moment for the disk, rather than ask again and again."""
        if idle and any(reader.load for reader in self._readers.values()):
            self._disk.wait(NAP_S)

    def leave(self, generation: Generation) -> None:
        """It runs no longer; perhaps it comes back."""
        if reader := self._readers.pop(generation, None):
            self._drop(reader)

    def keep(self, generation: Generation) -> None:
        """It ended well: keep all of its full blocks."""
        nodes = generation.running_sequence.path.nodes
        if nodes:
            reader = self._readers.get(generation)
            self._disk.offer(self._names(generation), nodes, anew_from=reader.bad_from if reader else None)

    def distrust(self, generation: Generation) -> None:
        """It failed: what it used and computed must not be found again."""
        if count := len(generation.running_sequence.path.nodes):
            self._disk.forget(self._names(generation), count)

    def stats(self) -> DiskStats:
        """What the disk holds, and what was done since the last call."""
        num_bytes, counts, warning = self._disk.news()
        return DiskStats(num_bytes, counts.read, counts.written, counts.refused, warning)

    def _new_reader(self, generation: Generation) -> _Reader:
        reader = self._readers[generation] = _Reader(self._names(generation))
        return reader

    def _names(self, generation: Generation) -> Names:
        if reader := self._readers.get(generation):
            return reader.names
        request = generation.request
        return self._disk.names(generation.tokens, request.namespace, request.cache_salt)

    def _begin(self, generation: Generation, reader: _Reader, reserve: Callable[[int], bool], now: float) -> bool:
        """Start reading its next blocks, where they are on disk."""
        sequence, size = generation.running_sequence, self._disk.block_size
        if sequence.num_computed % size or (self._stalled and not self._stalled.done):
            return False
        start = sequence.num_computed // size
        # stop one token short: logits need one token to compute
        most = min((len(sequence.tokens) - 1) // size - start, self._most_blocks)
        count = self._disk.count(reader.names, start, most)
        if not count:
            return False
        if reserve(count * size):
            reader.load, reader.since = self._disk.load(reader.names, start, count), now
        return True

    def _fill(self, generation: Generation, load: Load) -> None:
        """Into the blocks that it reserved. It may have got some of them from a neighbour meanwhile."""
        sequence, size = generation.running_sequence, self._disk.block_size
        first, end = sequence.num_computed // size, load.start + load.got
        if sequence.num_computed % size or first >= end:
            return
        self._disk.fill(load, first, [table[first:end] for table in sequence.tables])
        self._manager.restore(sequence, (end - first) * size)
        generation.note_cached()
        self._bytes_left -= (end - first) * self._disk.block_bytes

    @staticmethod
    def _drop(reader: _Reader) -> None:
        if reader.load is not None:
            reader.load.dropped, reader.load = True, None
