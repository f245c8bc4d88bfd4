"""How many blocks the KV cache gets: free memory of this machine or container, and a byte budget split over groups.

Knows bytes and files of the operating system; no tensors.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cache.groups import KVGroup, most_blocks

MIB = 1024 * 1024


class CacheTooSmall(Exception):
    """The budget cannot hold even one short sequence. The message is one line for the user, with the numbers."""

    def __init__(self, *, budget_bytes: int, needed_bytes: int, num_tokens: int) -> None:
        super().__init__(
            f"the KV cache has {math.floor(10 * budget_bytes / MIB) / 10} MiB, but one sequence of {num_tokens} tokens"
            f" needs {math.ceil(10 * needed_bytes / MIB) / 10} MiB"
        )
        self.budget_bytes = budget_bytes
        self.needed_bytes = needed_bytes
        self.num_tokens = num_tokens


def blocks_that_fit(
    budget_bytes: int,
    groups: Sequence[KVGroup],
    *,
    block_size: int,
    bytes_per_token_per_layer: int,
    max_num_seqs: int,
    max_model_len: int,
    max_chunk: int,
    min_tokens: int = 256,
) -> tuple[int, ...]:
    """Blocks per group, each with its null block, that fit the budget together.

    All groups get the same number n, as large as the budget allows, but none gets more than max_num_seqs sequences of
    max_model_len can hold in it: in a windowed group that is a window and a chunk per sequence, and as much again for
    windows that stay cached. What the windowed groups do not get then goes to the full group.

    Raises CacheTooSmall when not even one sequence of min(min_tokens, max_model_len) fits.
    """
    block_bytes = [len(group.layers) * block_size * bytes_per_token_per_layer for group in groups]

    def most(window: int | None, num_tokens: int) -> int:
        return most_blocks(window, num_tokens, block_size=block_size, max_chunk=max_chunk)

    whole = most(None, max_model_len)
    caps = [max_num_seqs * min(whole, 2 * most(group.window, max_model_len)) for group in groups]

    def total_bytes(n: int) -> int:
        return sum(cost * (min(n, cap) + 1) for cost, cap in zip(block_bytes, caps, strict=True))

    n = _largest(max(caps), lambda n: total_bytes(n) <= budget_bytes)
    shortest = min(min_tokens, max_model_len)
    needed = max(most(group.window, shortest) for group in groups)
    if n < needed:
        raise CacheTooSmall(budget_bytes=budget_bytes, needed_bytes=total_bytes(needed), num_tokens=shortest)
    return tuple(min(n, cap) + 1 for cap in caps)


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest n in 0..limit that fits, 0 if none does; whatever is less than a fitting n fits too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that this process can still use: what the machine has available, within the container's limits.

    Reads /proc and /sys/fs/cgroup below root. A control group (version 1 or 2) and every one above it may set a
    limit; what counts against it is its usage without file pages that the kernel can drop at once.
    """
    limits = [_available(root)]
    limits += [room for group in _control_groups(root) if (room := _room(group)) is not None]
    return max(0, min(limits))


def _available(root: Path) -> int:
    """MemAvailable of /proc/meminfo (given in KiB). Where there is no such file: half of the memory built in."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024


def _control_groups(root: Path) -> Iterator[Path]:
    """This process's memory control groups, innermost first, up to the top of each hierarchy.

    /proc/self/cgroup has lines "id:controllers:path"; version 2 has id 0 and no controllers. Inside a container the
    path may not exist below the mount point; its parents do.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top = root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
        else:
            continue
        inner = top / path.lstrip("/")
        yield from (group for group in (inner, *inner.parents) if group.is_relative_to(top))


def _room(group: Path) -> int | None:
    """Bytes left below this control group's limit; None if it sets none."""
    for limit_file, usage_file, droppable in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = (group / limit_file).read_text().strip()
            usage = int((group / usage_file).read_text())
        except OSError:
            continue
        if limit != "max":
            return int(limit) - max(0, usage - _stat(group, droppable))
    return None


def _stat(group: Path, name: str) -> int:
    """One number of the control group's memory.stat; 0 if it is not there."""
    try:
        lines = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)
