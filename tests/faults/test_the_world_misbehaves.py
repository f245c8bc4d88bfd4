"""A log that nobody can write to, a clock that jumps a day forth and back, a full disk, spoiled files on it.

None of it is seen in any answer.
"""

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from cache.directory import FOLDER, NAME
from tests.faults.conftest import REPEATS, SEED, Report
from tests.helpers.arena import FAULTY, SMALL, Arena, Heard, prompt_of
from tests.helpers.live_server import LiveServer

pytestmark = pytest.mark.e2e

DAY = "86400"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def odd(model: Path, folder: Path) -> Iterator[Arena]:
    """A server whose log goes to a full device and whose wall clock is never right; it keeps its prefixes on disk."""
    kept = ("--prefix-cache-dir", str(folder))
    with Path("/dev/full").open("w") as full:
        live = LiveServer(str(model), *SMALL, *kept, command=FAULTY, stderr=full, env={"FAULTY_CLOCK_JUMP": DAY})
        with live:
            yield Arena(live.wait_ready(), seed=SEED)


def blocks_on_disk(folder: Path) -> list[Path]:
    return [path for path in (folder / FOLDER).iterdir() if NAME.fullmatch(path.name)]


def test_the_log_is_full_and_the_clock_jumps(odd: Arena, report: Report) -> None:
    for _ in range(REPEATS):
        with odd.watched() as watch:
            crowd = odd.crowd()
            patient = odd.ask(prompt_of(1), timeout_ms=60_000)
            heard = [*crowd.join(), patient]
        assert {each.outcome for each in heard} == {"ok"}
        assert watch.states == ["ready"]
        report.hear(*heard)
        odd.settle()


def test_created_is_the_wall_clocks(odd: Arena) -> None:
    """So the clock does jump: it is a day before or after the right one."""
    created = odd.server.request("POST", "/v1/completions", {"prompt": "a"}).json()["created"]
    odd.note(Heard("ok", 200))
    assert abs(created - time.time()) > 80_000


def test_the_disk_is_full(odd: Arena, report: Report) -> None:
    """No file of the engine's may grow, which it hears as it hears of a full disk; all is answered as before."""
    engine = odd.server.engine_pid
    resource.prlimit(engine, resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
    for _ in range(REPEATS):
        with odd.watched() as watch:
            fresh = odd.ask([odd.rng.randrange(32, 250) for _ in range(100)])  # nobody has kept this yet
            heard = [*odd.crowd().join(), fresh]
        assert {each.outcome for each in heard} == {"ok"}
        assert watch.states == ["ready"]
        report.hear(*heard)
        odd.settle()
    assert odd.server.engine_pid == engine
    resource.prlimit(engine, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_files_of_the_cache_are_spoiled_and_the_engine_is_lost(odd: Arena, folder: Path, report: Report) -> None:
    """Restarting logs a lot, counts the seconds, and reads the files. The other faults of this server go on."""
    for _ in range(REPEATS):
        odd.server.until(lambda: blocks_on_disk(folder), "nothing was kept")
        refused = odd.server.figure('kvell_prefix_cache_disk_blocks_total{action="refused"}')
        with odd.watched():
            crowd = odd.crowd()
            odd.some_moment(crowd)
            with report.recovering():
                odd.kill_the_engine()
            heard = crowd.join()
            spoil(blocks_on_disk(folder), odd.rng)
            odd.kill_the_engine()
            again = odd.crowd().join()
            odd.settle()
        assert {each.code for each in heard} <= {None, "engine_unavailable"}
        assert {each.outcome for each in again} == {"ok"}
        assert odd.server.figure('kvell_prefix_cache_disk_blocks_total{action="refused"}') > refused
        report.hear(*heard, *again)


def spoil(files: list[Path], rng: Random) -> None:
    """Flip a bit in each, or cut it, or empty it."""
    for path in files:
        content = bytearray(path.read_bytes()) or bytearray(1)
        where = rng.randrange(len(content))
        content[where] ^= 1 << rng.randrange(8)
        path.write_bytes(rng.choice([content, content[:where], b""]))
