"""How many threads the engine takes when nobody says: a pretended machine below a directory."""

import os
from pathlib import Path

import pytest

from server.engine.cores import usable_cores


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """8 hardware threads on 4 cores: 0 and 4, 1 and 5 and so on share a core."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    for cpu in range(8):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_two_hardware_threads_of_a_core_count_once(machine: Path) -> None:
    assert usable_cores(machine) == 4


def test_cores_that_others_may_use_do_not_count(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 4}, raising=False)
    assert usable_cores(machine) == 2


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 4), ("150000 100000", 2), ("50000 100000", 1), ("900000 100000", 4)]
)
def test_a_containers_quota_counts(machine: Path, quota: str, cores: int) -> None:
    write(machine, "sys/fs/cgroup/cpu.max", quota + "\n")
    assert usable_cores(machine) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 4), ("200000", 2)])
def test_control_groups_of_the_first_version_count_too(machine: Path, quota: str, cores: int) -> None:
    write(machine, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota + "\n")
    write(machine, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert usable_cores(machine) == cores


def test_a_system_that_says_nothing_is_taken_by_its_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    assert usable_cores(tmp_path) == 3


def test_this_machine_has_at_least_one() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
