"""Runs other programs: to their end, for the JSON on their last line; or as a neighbour that keeps a core busy."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peer.contests import MeasureFailed

ROOT = Path(__file__).resolve().parent.parent.parent
TAIL = 300  # characters of an error that are worth repeating
SPIN = "import os\nwhile os.getppid() == {parent}:\n    for _ in range(1000000): pass"


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """For a child process: this one's, with this repository's modules to be found, and more."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def output_of(
    command: Sequence[str], *, timeout_s: float = 600.0, env: Mapping[str, str] | None = None, errors_too: bool = False
) -> str:
    """What the program wrote to stdout, with errors_too also to stderr. env comes on top of `environment`.

    Raises MeasureFailed, with the end of what the program said.
    """
    try:
        done = subprocess.run(
            command,
            env=environment(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors_too else subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasureFailed(f"did not end within {timeout_s:g} s") from error
    except OSError as error:
        raise MeasureFailed(f"could not be started: {error}") from error
    if done.returncode:
        said = ((done.stderr or "").strip() or done.stdout.strip())[-TAIL:]
        raise MeasureFailed(f"ended with code {done.returncode}: {said}")
    return done.stdout


def json_of(command: Sequence[str], *, timeout_s: float = 600.0, env: Mapping[str, str] | None = None) -> Any:
    """The JSON on the program's last line of output. Raises MeasureFailed."""
    return last_json(output_of(command, timeout_s=timeout_s, env=env))


def last_json(output: str) -> Any:
    """The JSON on the last line that isn't blank. Raises MeasureFailed where there is none."""
    lines = output.strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError) as error:
        raise MeasureFailed(f"no JSON on its last line: {output[-TAIL:]}") from error


@contextlib.contextmanager
def busy_neighbour() -> Iterator[int]:
    """Another process takes all it can get of one core, as long as this lasts; yields its id.

    It also ends when this process does.
    """
    process = subprocess.Popen([sys.executable, "-c", SPIN.format(parent=os.getpid())])
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
