"""Files are whole or absent, private, nameless, and never more than the limit."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from cache.directory import FOLDER, KEY_FILE, PAGE, TEMPORARY, BlockDirectory

NAMES = [f"{number:064x}" for number in range(20)]


def open_in(folder: Path, *, pages: int = 100) -> BlockDirectory:
    return BlockDirectory(folder, pages * PAGE)


def listing(folder: Path) -> set[str]:
    return {path.name for path in (folder / FOLDER).iterdir()} - {KEY_FILE}


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    first = open_in(tmp_path)
    assert first.write(NAMES[0], [b"ab", memoryview(b"c")], 5)
    assert NAMES[0] in first
    again = open_in(tmp_path)
    assert (again.read(NAMES[0]), len(again), again.num_bytes) == (b"abc", 1, PAGE)
    assert again.key == first.key
    assert len(first.key) == 32


def test_only_the_owner_can_look_into_it(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(mode=0o755)
    before = os.umask(0)
    try:
        open_in(tmp_path).write(NAMES[0], [b"secret"], 5)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / FOLDER).stat().st_mode) == 0o700
    for file in (tmp_path / FOLDER).iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("pages", [1, 3, 10])
def test_the_limit_holds_after_every_write_and_the_oldest_go_first(pages: int, tmp_path: Path) -> None:
    directory = open_in(tmp_path, pages=pages)
    for number, name in enumerate(NAMES):
        assert directory.write(name, [b"x" * 100], number)
        assert directory.num_bytes <= pages * PAGE
        held = [path.stat().st_size for path in (tmp_path / FOLDER).iterdir() if path.name != KEY_FILE]
        assert len(held) * PAGE == directory.num_bytes
    left = [name for name in NAMES if name in directory]
    assert left == NAMES[-len(left) :]
    assert len(left) >= max(pages - 1, 1)


def test_what_was_of_use_stays(tmp_path: Path) -> None:
    directory = open_in(tmp_path, pages=3)
    for number in range(3):
        directory.write(NAMES[number], [b"x"], number)
    directory.touch([(NAMES[0], 10), (NAMES[19], 10)])
    again = open_in(tmp_path, pages=3)  # the order outlives the process
    again.write(NAMES[3], [b"x"], 11)
    assert NAMES[0] in again
    assert NAMES[1] not in again


def test_a_smaller_limit_holds_from_the_start(tmp_path: Path) -> None:
    directory = open_in(tmp_path)
    for number in range(10):
        directory.write(NAMES[number], [b"x"], number)
    assert open_in(tmp_path, pages=4).num_bytes <= 4 * PAGE
    assert len(listing(tmp_path)) <= 4


def test_a_block_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    directory = open_in(tmp_path, pages=2)
    directory.write(NAMES[0], [b"x"], 1)
    assert not directory.write(NAMES[1], [bytes(3 * PAGE)], 2)
    assert NAMES[0] in directory


def test_a_block_written_twice_counts_once(tmp_path: Path) -> None:
    directory = open_in(tmp_path)
    directory.write(NAMES[0], [b"x"], 1)
    directory.write(NAMES[0], [bytes(PAGE + 1)], 2)
    assert (len(directory), directory.num_bytes) == (1, 2 * PAGE)


def test_files_that_were_never_finished_are_swept_away(tmp_path: Path) -> None:
    open_in(tmp_path)
    (tmp_path / FOLDER / (TEMPORARY + "1234")).write_bytes(b"half")
    (tmp_path / FOLDER / "a note of the user's").write_text("stays")
    assert len(open_in(tmp_path)) == 0
    assert listing(tmp_path) == {"a note of the user's"}


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = open_in(tmp_path)

    def full(*paths: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="no space"):
        directory.write(NAMES[0], [b"x"], 1)
    assert (listing(tmp_path), directory.num_bytes, NAMES[0] in directory) == (set(), 0, False)


def test_what_somebody_else_removed_is_gone(tmp_path: Path) -> None:
    directory = open_in(tmp_path)
    directory.write(NAMES[0], [b"x"], 1)
    (tmp_path / FOLDER / NAMES[0]).unlink()
    assert directory.read(NAMES[0]) is None
    assert (NAMES[0] in directory, directory.num_bytes) == (False, 0)
    directory.remove(NAMES[0], NAMES[1])


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    directory = open_in(tmp_path)
    directory.write(NAMES[0], [b"x"], 1)
    (tmp_path / FOLDER / NAMES[0]).unlink()
    (tmp_path / FOLDER / NAMES[0]).symlink_to("/etc/hostname")
    assert directory.read(NAMES[0]) is None


def test_a_folder_that_is_a_link_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not a folder of this user's"):
        open_in(tmp_path)


def test_a_file_in_the_way_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"[Ee]xists|[Nn]ot a directory"):
        open_in(tmp_path / "file")


def test_a_torn_key_is_made_anew(tmp_path: Path) -> None:
    first = open_in(tmp_path)
    (tmp_path / FOLDER / KEY_FILE).write_bytes(b"half")
    again = open_in(tmp_path)
    assert len(again.key) == 32
    assert again.key != first.key
