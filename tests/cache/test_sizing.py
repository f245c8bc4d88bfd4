"""The budget is kept, every group gets its share, and containers' limits count."""

import os
from pathlib import Path

import pytest

from cache.groups import KVGroup, group_layers, most_blocks
from cache.manager import CacheManager
from cache.sizing import MIB, CacheTooSmall, blocks_that_fit, free_memory

BLOCK, CHUNK, TOKEN_BYTES = 16, 64, 100
FULL = [KVGroup(None, (0, 1, 2))]
MIXED = group_layers([32, 32, None, 32, 32, None])


def split(budget_bytes: int, groups: list[KVGroup] | tuple[KVGroup, ...], **changed: int) -> tuple[int, ...]:
    settings = {"max_num_seqs": 4, "max_model_len": 1000, "max_chunk": CHUNK} | changed
    return blocks_that_fit(budget_bytes, groups, block_size=BLOCK, bytes_per_token_per_layer=TOKEN_BYTES, **settings)


def cost(blocks: tuple[int, ...], groups: list[KVGroup] | tuple[KVGroup, ...]) -> int:
    return sum(n * len(group.layers) * BLOCK * TOKEN_BYTES for n, group in zip(blocks, groups, strict=True))


@pytest.mark.parametrize("budget", [200_000, 333_333, 600_000, 900_000])
@pytest.mark.parametrize("groups", [FULL, MIXED])
def test_the_budget_is_used_up_but_never_exceeded(budget: int, groups: list[KVGroup]) -> None:
    blocks = split(budget, groups)
    one_more = tuple(n + 1 for n in blocks)
    assert cost(blocks, groups) <= budget < cost(one_more, groups)


def test_no_more_than_all_sequences_at_full_length_need() -> None:
    assert split(10**12, FULL) == (4 * 63 + 1,)  # 1000 tokens are 63 blocks


def test_what_windows_do_not_need_goes_to_the_full_group() -> None:
    groups = (KVGroup(None, (0,)), KVGroup(32, (1, 2, 3)))
    per_window = most_blocks(32, 1000, block_size=BLOCK, max_chunk=CHUNK)
    full, windowed = split(600_000, groups)
    assert windowed == 2 * 4 * per_window + 1  # every sequence's window, and as much again that may stay cached
    assert full > 2 * windowed


def test_a_small_budget_gives_all_groups_the_same() -> None:
    full, windowed = split(400_000, MIXED)
    assert full == windowed


def test_a_window_longer_than_the_context_needs_no_more_than_the_context() -> None:
    groups = (KVGroup(None, (0,)), KVGroup(100_000, (1,)))
    assert split(10**12, groups) == (4 * 63 + 1, 4 * 63 + 1)


def test_the_shortest_sequence_that_must_fit_really_fits() -> None:
    needed = 1
    while True:
        try:
            blocks = split(needed * 1000, MIXED)
            break
        except CacheTooSmall:
            needed += 1
    assert CacheManager(MIXED, blocks, block_size=BLOCK, max_chunk=CHUNK).can_ever_fit(256)
    with pytest.raises(CacheTooSmall):
        split((needed - 1) * 1000, MIXED)


def test_too_little_is_an_error_in_one_line_that_says_how_much_would_do() -> None:
    with pytest.raises(CacheTooSmall) as caught:
        split(50_000, FULL)
    error = caught.value
    assert error.needed_bytes == 17 * 3 * BLOCK * TOKEN_BYTES  # 256 tokens and the null block
    assert str(error) == "the KV cache has 0.0 MiB, but one sequence of 256 tokens needs 0.1 MiB"
    assert split(error.needed_bytes, FULL) == (17,)


def test_a_short_context_needs_no_more_than_itself() -> None:
    assert split(15_000, FULL, max_model_len=20) == (3,)
    with pytest.raises(CacheTooSmall, match="one sequence of 20 tokens"):
        split(10_000, MIXED, max_model_len=20)


# -- free memory


def machine(root: Path, *, available_mib: int, cgroup: str = "", files: dict[str, str] | None = None) -> Path:
    tree = {"proc/meminfo": f"MemTotal: 99999999 kB\nMemAvailable: {available_mib * 1024} kB\n"}
    tree |= {"proc/self/cgroup": cgroup} if cgroup else {}
    for name, text in (tree | (files or {})).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_without_control_groups_it_is_what_the_kernel_says_is_available(tmp_path: Path) -> None:
    assert free_memory(machine(tmp_path, available_mib=700)) == 700 * MIB


def test_a_version_2_limit_counts_with_its_usage(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": str(300 * MIB), "sys/fs/cgroup/memory.current": str(100 * MIB)}
    assert free_memory(machine(tmp_path, available_mib=700, cgroup="0::/", files=files)) == 200 * MIB


def test_file_pages_that_the_kernel_can_drop_are_not_usage(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory.max": str(300 * MIB),
        "sys/fs/cgroup/memory.current": str(250 * MIB),
        "sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {200 * MIB}\nactive_file 7",
    }
    assert free_memory(machine(tmp_path, available_mib=700, cgroup="0::/", files=files)) == 250 * MIB


def test_the_tightest_group_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/pod/box/memory.max": "max",
        "sys/fs/cgroup/pod/box/memory.current": str(10 * MIB),
        "sys/fs/cgroup/pod/memory.max": str(90 * MIB),
        "sys/fs/cgroup/pod/memory.current": str(40 * MIB),
        "sys/fs/cgroup/other/memory.max": "1",
        "sys/fs/cgroup/other/memory.current": "0",
    }
    assert free_memory(machine(tmp_path, available_mib=700, cgroup="0::/pod/box", files=files)) == 50 * MIB


def test_a_path_from_outside_the_container_falls_back_to_what_is_mounted(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": str(64 * MIB), "sys/fs/cgroup/memory.current": "0"}
    root = machine(tmp_path, available_mib=700, cgroup="0::/kubepods/pod1/abc", files=files)
    assert free_memory(root) == 64 * MIB


def test_a_version_1_limit_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": str(500 * MIB),
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": str(100 * MIB),
        "sys/fs/cgroup/memory/box/memory.stat": f"inactive_file 0\ntotal_inactive_file {20 * MIB}",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": str(900 * MIB),
    }
    cgroup = "5:cpu,cpuacct:/box\n4:memory,hugetlb:/box\n0::/box"
    assert free_memory(machine(tmp_path, available_mib=700, cgroup=cgroup, files=files)) == 420 * MIB


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": "1000", "sys/fs/cgroup/memory.current": "2000"}
    assert free_memory(machine(tmp_path, available_mib=700, cgroup="0::/", files=files)) == 0


def test_where_there_is_no_proc_half_of_the_memory_counts(tmp_path: Path) -> None:
    assert free_memory(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def test_this_machine_has_some_memory_free() -> None:
    assert 0 < free_memory() < 2**50
