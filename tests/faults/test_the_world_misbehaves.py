"""A log that nobody can write to, and a wall clock that jumps a day forth and back: neither is seen in any answer."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import REPEATS, SEED, Report
from tests.helpers.arena import FAULTY, SMALL, Arena, prompt_of
from tests.helpers.live_server import LiveServer

pytestmark = pytest.mark.e2e

DAY = "86400"


@pytest.fixture(scope="module")
def odd(model: Path) -> Iterator[Arena]:
    """A server with both."""
    with Path("/dev/full").open("w") as full:
        live = LiveServer(str(model), *SMALL, command=FAULTY, stderr=full, env={"FAULTY_CLOCK_JUMP": DAY})
        with live:
            yield Arena(live.wait_ready(), seed=SEED)


def test_a_full_disk_under_the_log_and_a_jumping_clock(odd: Arena, report: Report) -> None:
    for _ in range(REPEATS):
        with odd.watched() as watch:
            crowd = odd.crowd()
            patient = odd.ask(prompt_of(1), timeout_ms=60_000)
            heard = [*crowd.join(), patient]
        assert {each.outcome for each in heard} == {"ok"}
        assert watch.states == ["ready"]
        report.hear(*heard)
        odd.settle()


def test_a_lost_engine_under_a_full_disk_and_a_jumping_clock(odd: Arena, report: Report) -> None:
    """Restarting logs a lot, and counts the seconds."""
    for _ in range(REPEATS):
        with odd.watched() as watch:
            crowd = odd.crowd()
            odd.some_moment(crowd)
            with report.recovering():
                os.kill(odd.server.engine_pid, signal.SIGKILL)
                heard = crowd.join()
                odd.server.until(lambda: "restarting" in watch.states, "nobody noticed")
                odd.until_ready()
            odd.settle()
        assert {each.code for each in heard} <= {None, "engine_unavailable"}
        report.hear(*heard)


def test_created_is_the_wall_clocks(odd: Arena) -> None:
    """So the clock does jump: it is a day before or after the right one."""
    created = odd.server.request("POST", "/v1/completions", {"prompt": "a"}).json()["created"]
    assert abs(created - time.time()) > 80_000
