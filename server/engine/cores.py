"""How many threads are worth having: physical cores that this process may use, within the container's CPU quota."""

import os
from math import ceil
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """At least 1. Two hardware threads of one core count once: arithmetic gains nothing from the second."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = len({_core_of(cpu, root) for cpu in cpus})
    quota = _quota(root)
    return max(1, cores if quota is None else min(cores, ceil(quota)))


def _core_of(cpu: int, root: Path) -> str:
    """The same text for hardware threads of one core; unique where the system doesn't say."""
    try:
        return (root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return f"cpu {cpu}"


def _quota(root: Path) -> float | None:
    """CPUs' worth of time that the innermost visible control group (version 2 or 1) grants; None: no limit."""
    try:
        limit, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    return None if limit in ("max", "-1") else int(limit) / int(period)
