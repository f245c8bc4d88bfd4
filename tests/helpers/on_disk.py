"""Blocks on disk for engines under test: what is there is waited for, and the folder can be looked at and spoiled."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cache.directory import FOLDER, NAME, BlockDirectory
from cache.disk import DiskCache
from cache.manager import CacheManager
from server.engine.reloading import Reloader, Reloading
from tests.helpers.worlds import World

ROOMY = 2**30


@contextmanager
def kept_in(
    folder: Path, *, form: Sequence[str] = (), max_bytes: int = ROOMY
) -> Iterator[Callable[[CacheManager, Any], Reloading]]:
    """Makes an engine's `disk` over the folder. On leaving, all that was copied is written."""
    caches: list[DiskCache] = []

    def make(manager: CacheManager, pool: Any) -> Reloading:
        caches.append(
            DiskCache(BlockDirectory(folder, max_bytes), pool, block_size=manager.block_size, form=list(form))
        )
        return Reloader(manager, caches[-1])

    yield make
    for cache in caches:
        cache.close()


def hold(disk: DiskCache) -> threading.Event:
    """The disk's thread stands still from now on, until the event is set."""
    held, gate = threading.Event(), threading.Event()
    disk._do(lambda: (held.set(), gate.wait()))
    held.wait()
    return gate


def files_in(folder: Path) -> list[Path]:
    """The blocks, by name."""
    return sorted(path for path in (folder / FOLDER).iterdir() if NAME.fullmatch(path.name))


def totals(world: World) -> tuple[int, int, int]:
    """Blocks read, written and refused, as the steps reported them."""
    reports = [stats.disk for stats in world.history if stats.disk]
    return (
        sum(each.blocks_read for each in reports),
        sum(each.blocks_written for each in reports),
        sum(each.blocks_refused for each in reports),
    )
