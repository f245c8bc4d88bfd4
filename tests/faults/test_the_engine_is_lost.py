"""The engine is killed, stopped, starved or crashed by a request: who was in it hears so, and all goes on."""

import resource
import signal
from pathlib import Path

import pytest

from tests.faults.conftest import REPEATS, Report
from tests.helpers.arena import Arena, Heard, ReadyWatch
from tests.helpers.faults import ABORT, ABORTING_PATTERN, EXIT, HANG, LARGE, SEGFAULT, SPIN

pytestmark = pytest.mark.e2e

STOPPED_GRACE = 2.5  # a stopped engine may come back, so it is believed in for a third of its timeout


def lost(heard: list[Heard]) -> None:
    """All were answered, or told that the engine is gone, or that there is none."""
    assert {each.code for each in heard} <= {None, "engine_unavailable"}


def check_states(watch: ReadyWatch) -> None:
    assert watch.states[0] == watch.states[-1] == "ready"
    assert "restarting" in watch.states


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_the_engine_is(arena: Arena, report: Report, number: signal.Signals) -> None:
    for _ in range(REPEATS):
        with arena.watched(grace_s=STOPPED_GRACE) as watch:
            crowd = arena.crowd()
            arena.some_moment(crowd)
            with report.recovering():
                arena.kill_the_engine(number)
            heard = crowd.join()
            again = arena.crowd().join()  # those that were lost are suspects now, and answered one by one
            assert {each.outcome for each in again} == {"ok"}
            arena.settle()
        check_states(watch)
        lost(heard)
        report.hear(*heard, *again)


def test_the_engine_gets_no_more_memory(arena: Arena, report: Report) -> None:
    """Whatever breaks, a request or the engine, nobody hangs, and all works again when there is memory."""
    for round_id in range(REPEATS):
        after = arena.rng.randrange(100)
        large = {"prompt": [LARGE, after, 100 + round_id], "max_tokens": after + 1}
        with arena.watched():
            engine = arena.server.engine_pid
            crowd = arena.crowd()
            arena.some_moment(crowd)
            with report.recovering():
                limit_memory(engine, arena.rng.choice([0, 8 << 20]))
                starved = [arena.ask(**large), arena.ask([77] * 1200, max_tokens=300, logprobs=5, echo=True)]
                heard = crowd.join()
                arena.until_ready()
                if arena.server.engine_pid == engine:
                    resource.prlimit(engine, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            arena.settle()
        assert starved[0].code in ("engine_unavailable", "generation_failed")
        assert {each.code for each in (*heard, *starved)} <= {None, "engine_unavailable", "generation_failed"}
        assert arena.ask(**large).outcome == "ok"
        report.hear(*heard, *starved)


def limit_memory(pid: int, more: int) -> None:
    """So many bytes more than it has now, and not one beyond."""
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))


def test_a_request_crashes_the_engine(arena: Arena, report: Report) -> None:
    """Once among others, once alone; then it is refused, and none of the others ever is."""
    rng = arena.rng
    for round_id in range(REPEATS):
        kind = ABORT if REPEATS == 1 else rng.choice([ABORT, SEGFAULT, EXIT, HANG, SPIN])
        guilty = [kind, rng.randrange(60), 100 + round_id, *rng.choices(range(32, 250), k=rng.randrange(30))]
        refusals = arena.server.figure('kvell_rejections_total{reason="condemned_request"}')
        with arena.watched(grace_s=STOPPED_GRACE) as watch:
            crowd = arena.crowd()
            with report.recovering():
                first = arena.ask(guilty, stream=True)
                heard = crowd.join()
                arena.until_ready()
            assert first.code == "engine_unavailable"
            with report.recovering():
                second_crowd = arena.crowd()
                second = arena.ask(guilty)
                again = second_crowd.join()
                arena.until_ready()
            third = arena.ask(guilty)
            assert [second.code, third.code] == ["condemned_request"] * 2
            assert (second.status, third.status) == (400, 400)
            arena.settle()
        check_states(watch)
        assert {each.code for each in again} <= {None, "engine_unavailable"}
        last = arena.crowd().join()
        assert {each.outcome for each in last} == {"ok"}, "an innocent was refused"
        lost(heard)
        assert arena.server.figure('kvell_rejections_total{reason="condemned_request"}') == refusals + 1
        report.hear(first, second, third, *heard, *again, *last)


@pytest.mark.skipif(REPEATS == 1, reason="only in make test-faults: it costs two starts of the engine")
def test_a_pattern_crashes_the_engine_while_it_is_compiled(arena: Arena, report: Report) -> None:
    for round_id in range(REPEATS):
        guilty = {"structured_outputs": {"regex": ABORTING_PATTERN}, "max_tokens": 5}
        for code in ("engine_unavailable", "condemned_request", "condemned_request"):
            heard = arena.ask([60, 61, 100 + round_id], **guilty)
            assert heard.code == code
            report.hear(heard)
            arena.until_ready()
        arena.settle()
