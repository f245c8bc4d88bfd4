"""Files that were checked against a SHA-256 once and are trusted until they change.

Beside `x` lies `x.checked.json` with digest, size and modification time. A file that no longer matches its record is
hashed again; damage that keeps both size and time goes unnoticed until someone deletes the record.
"""

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from server.catalogue.progress import Progress, silent

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class _Record:
    sha256: str
    size: int
    mtime_ns: int


def is_intact(path: Path, sha256: str, *, progress: Progress = silent) -> bool:
    """Whether the file is there and has this digest. Hashes it only if its size or time changed since last checked."""
    if not path.is_file():
        return False
    if _read_record(path) == _record_now(path, sha256):
        return True
    if sha256_of(path, progress=progress) != sha256:
        return False
    with contextlib.suppress(OSError):  # a read-only or full disk costs a hash at each start, not the model
        remember(path, sha256)
    return True


def remember(path: Path, sha256: str) -> None:
    """Note that the file as it is now has this digest."""
    _record_path(path).write_text(json.dumps(asdict(_record_now(path, sha256))) + "\n", encoding="utf-8")


def sha256_of(path: Path, *, progress: Progress = silent) -> str:
    """The file's digest in hex, read a megabyte at a time."""
    sha, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha.update(chunk)
            done += len(chunk)
            progress(f"checking {path.name}", done, total)
    return sha.hexdigest()


def _record_path(path: Path) -> Path:
    return path.with_name(path.name + ".checked.json")


def _record_now(path: Path, sha256: str) -> _Record:
    stat = path.stat()
    return _Record(sha256, stat.st_size, stat.st_mtime_ns)


def _read_record(path: Path) -> _Record | None:
    """None for a record that is missing or makes no sense: then the file is hashed."""
    try:
        return _Record(**json.loads(_record_path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
