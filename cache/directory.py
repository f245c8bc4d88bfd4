"""The folder in which blocks outlive the process: one file a block, written whole or not at all, the oldest go first.

Runs on one thread, but `in` and the figures may be asked from any. Only the owner may read the files, and their names
say nothing: they are hashes under a key that lies beside them. Nothing waits for the medium (no fsync): a process that
is killed loses nothing that was renamed, and what a power cut tears, its checksum betrays. Several servers may share a
folder; each then keeps to the size limit for what it has seen.

Knows bytes and names; no tokens, no tensors, no threads.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cache.record import KEY_BYTES

FOLDER = "kvell-prefixes"  # below what the user named, so that no other file is touched
KEY_FILE = "key"
NAME = re.compile(r"[0-9a-f]{64}")
TEMPORARY = "tmp-"
PAGE = 4096  # what a file takes on the medium is a multiple of it
SHRINK_TO = 0.95  # of the limit, so that room is not made for every single block


@dataclass(slots=True)
class _File:
    size: int
    used_ns: int  # when it was last of use; older ones go first


class BlockDirectory:
    """The blocks below `path`, at most max_bytes of them. Raises OSError where the folder can't be had or trusted."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path / FOLDER
        self._max_bytes = max_bytes
        self._files: dict[str, _File] = {}
        self.num_bytes = 0
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._expect_ours()
        self.key = self._open_key()
        self._scan()
        self._make_room(0)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def __len__(self) -> int:
        return len(self._files)

    def write(self, name: str, parts: Iterable[bytes | memoryview], used_ns: int) -> bool:
        """Keep a block; False when it is larger than all the room there is. Raises OSError, and leaves nothing then."""
        parts = list(parts)
        size = _on_medium(sum(memoryview(part).nbytes for part in parts))
        if size > self._max_bytes:
            return False
        self._make_room(size)
        temporary = self._path / (TEMPORARY + secrets.token_hex(8))
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "wb") as file:
                for part in parts:
                    file.write(part)
            os.utime(temporary, ns=(used_ns, used_ns))
            os.rename(temporary, self._path / name)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._note(name, _File(size, used_ns))
        return True

    def read(self, name: str) -> bytes | None:
        """The block's file; None when it is gone, or can't be read. It is not known any more then."""
        try:
            descriptor = os.open(self._path / name, os.O_RDONLY | os.O_NOFOLLOW)
            with open(descriptor, "rb") as file:
                return file.read()
        except OSError:
            self._forget(name)
            return None

    def touch(self, used: Iterable[tuple[str, int]]) -> None:
        """These were of use at these times."""
        for name, used_ns in used:
            if name in self._files:
                self._files[name].used_ns = used_ns
                with contextlib.suppress(OSError):
                    os.utime(self._path / name, ns=(used_ns, used_ns))

    def remove(self, *names: str) -> None:
        """These blocks are not to be found again."""
        for name in names:
            self._forget(name)
            with contextlib.suppress(OSError):
                (self._path / name).unlink()

    def _expect_ours(self) -> None:
        """The folder is a real one, of this user's, and from now on nobody else can look into it."""
        status = self._path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "not a folder of this user's", str(self._path))
        os.chmod(self._path, 0o700)
        if not os.access(self._path, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(self._path))

    def _open_key(self) -> bytes:
        """The secret under which names are made. Who comes first makes it; without it old blocks are never found."""
        file = self._path / KEY_FILE
        with contextlib.suppress(FileNotFoundError):
            if len(key := file.read_bytes()) == KEY_BYTES:
                return key
            file.unlink()
        with contextlib.suppress(FileExistsError):  # then another server was quicker
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, secrets.token_bytes(KEY_BYTES))
            os.close(descriptor)
        return file.read_bytes()

    def _scan(self) -> None:
        """What is there. Files that were never finished are swept away."""
        with os.scandir(self._path) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.name.startswith(TEMPORARY):
                        os.unlink(entry)
                    elif NAME.fullmatch(entry.name):
                        status = entry.stat(follow_symlinks=False)
                        self._note(entry.name, _File(_on_medium(status.st_size), status.st_mtime_ns))

    def _make_room(self, size: int) -> None:
        """Remove what was of no use for the longest time, so that so many more bytes stay within the limit."""
        if self.num_bytes + size <= self._max_bytes:
            return
        for name in sorted(self._files, key=lambda name: self._files[name].used_ns):
            self.remove(name)
            if self.num_bytes + size <= SHRINK_TO * self._max_bytes:
                return

    def _note(self, name: str, file: _File) -> None:
        self._forget(name)
        self._files[name] = file
        self.num_bytes += file.size

    def _forget(self, name: str) -> None:
        if file := self._files.pop(name, None):
            self.num_bytes -= file.size


def _on_medium(size: int) -> int:
    return -(-size // PAGE) * PAGE
