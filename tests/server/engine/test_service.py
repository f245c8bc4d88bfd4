"""The service against real processes that run a fake engine: what users see when it works, dies, hangs and drains."""

import asyncio
import os
import signal

import pytest

from server.engine.errors import (
    CondemnedRequest,
    Draining,
    EngineUnavailable,
    InvalidValue,
    StartupFailed,
    TooBusy,
)
from server.engine.request import TokenEvent
from server.engine.service import EngineService
from server.engine.submission import Submission
from server.metrics import Metrics
from tests.helpers.fake_engine import BUSY, COUNT, CRASH, FAULT, HOLD, SPIN, WARN
from tests.helpers.waiting import DEADLINE_SECONDS, eventually, is_running, open_files


def figure(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"kvell_{name}", labels)


async def collect(submission: Submission) -> dict[str, list[int]]:
    """Tokens by request, once all have finished."""
    tokens: dict[str, list[int]] = {}
    async with asyncio.timeout(DEADLINE_SECONDS):
        async for event in submission:
            tokens.setdefault(event.request_id, []).extend(event.tokens)
    return tokens


async def started(service: EngineService) -> int:
    """Its engine's pid."""
    await service.start()
    assert service.engine_pid is not None
    return service.engine_pid


def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.engine.service.backoff_s", lambda failures: 0.0)


# when all goes well


async def test_a_ready_engine_says_what_it_is(make_service, metrics) -> None:
    service = make_service()
    assert (service.state, service.ready, service.info) == ("starting", False, None)
    info = await service.start()
    assert service.info == info
    assert (info.backend, info.max_model_len) == ("fake", 128)
    assert (service.state, service.ready, service.reason) == ("ready", True, "ready")
    assert figure(metrics, "engine_up") == 1
    labels = {"backend": "fake", "device": "cpu", "dtype": "float32", "kv_cache_dtype": "float32"}
    labels |= {"kernels": "", "note": "", "quantization": info.quantization}
    assert figure(metrics, "backend_info", **labels) == 1


async def test_requests_submitted_together_get_their_own_tokens_in_order(make_service, make_request) -> None:
    service = make_service()
    await service.start()
    requests = [make_request(COUNT, max_tokens=count) for count in (1, 5, 3)]
    tokens = await collect(service.submit(requests))
    assert tokens == {r.id: list(range(100, 100 + r.max_tokens)) for r in requests}
    assert service.num_in_flight == 0


async def test_many_submissions_at_once_do_not_mix(make_service, make_request) -> None:
    service = make_service()
    await service.start()
    requests = [make_request(COUNT, max_tokens=1 + number % 7) for number in range(50)]
    answers = await asyncio.gather(*(collect(service.submit([request])) for request in requests))
    assert answers == [{r.id: list(range(100, 100 + r.max_tokens))} for r in requests]


async def test_a_submission_is_admitted_before_its_first_token(make_service, make_request) -> None:
    service = make_service()
    await service.start()
    submission = service.submit([make_request(HOLD)])
    assert not submission.admitted
    await eventually(lambda: submission.admitted)
    assert await submission.batch() == [TokenEvent(request_id="request-0")]


async def test_one_requests_error_is_its_own(make_service, make_request) -> None:
    service = make_service()
    await service.start()
    bad, good = make_request(FAULT), make_request(COUNT)
    events = [event async for event in service.submit([bad, good])]
    last = {event.request_id: event for event in events}
    assert (last[bad.id].finish, last[bad.id].error) == ("error", "it was asked to")
    assert last[good.id].finish == "length"
    assert service.ready


async def test_a_very_large_submit_gets_through(make_service, make_request) -> None:
    service = make_service()
    await service.start()
    requests = [make_request(COUNT, max_tokens=1, rest=tuple(range(100_000))) for _ in range(64)]
    tokens = await collect(service.submit(requests))
    assert tokens == {request.id: [100] for request in requests}


async def test_a_slow_consumer_gets_what_it_missed_as_one_event(make_service, make_request) -> None:
    service = make_service()
    await service.start()
    requests = [make_request(COUNT, max_tokens=40), make_request(COUNT, max_tokens=30)]
    submission = service.submit(requests)
    await eventually(lambda: service.num_in_flight == 0)
    events = await submission.batch()
    assert [event.request_id for event in events] == [request.id for request in requests]
    assert [event.tokens for event in events] == [tuple(range(100, 140)), tuple(range(100, 130))]
    assert [event.finish for event in events] == ["length", "length"]
    assert await submission.batch() == ()


async def test_giving_up_a_wait_loses_no_event(make_service, make_request) -> None:
    service = make_service()
    await service.start()
    submission = service.submit([make_request(COUNT, max_tokens=200)])
    tokens: list[int] = []
    finished = False
    while not finished:
        try:
            events = await asyncio.wait_for(submission.batch(), 0.0005)
        except TimeoutError:
            continue
        tokens += [token for event in events for token in event.tokens]
        finished = any(event.finish for event in events)
    assert tokens == list(range(100, 300))


# cancelling


async def test_cancelling_frees_the_engine_without_further_traffic(make_service, make_request, metrics) -> None:
    service = make_service()
    await service.start()
    submission = service.submit([make_request(HOLD), make_request(HOLD)])
    await eventually(lambda: figure(metrics, "requests_running") == 2)
    assert figure(metrics, "kv_cache_blocks", state="used") == 2
    submission.cancel()
    assert service.num_in_flight == 0
    assert await submission.batch() == ()
    await eventually(lambda: figure(metrics, "requests_running") == 0)
    assert figure(metrics, "kv_cache_blocks", state="used") == 0


async def test_cancelling_one_of_two_leaves_the_other(make_service, make_request) -> None:
    service = make_service()
    await service.start()
    held, counting = make_request(HOLD), make_request(COUNT, max_tokens=4)
    submission = service.submit([held, counting])
    submission.cancel(held.id)
    submission.cancel(held.id)  # a second time, and one that nobody knows: nothing to do
    submission.cancel("somebody else's")
    assert await collect(submission) == {counting.id: [100, 101, 102, 103]}


async def test_leaving_the_context_cancels(make_service, make_request, metrics) -> None:
    service = make_service()
    await service.start()
    with service.submit([make_request(HOLD)]) as submission:
        await submission.batch()
    assert service.num_in_flight == 0
    await eventually(lambda: figure(metrics, "requests_running") == 0)


async def test_tokens_that_nobody_takes_count_as_discarded(make_service, make_request, metrics) -> None:
    service = make_service()
    await service.start()
    request = make_request(COUNT, max_tokens=1_000_000)
    submission = service.submit([request])
    taken = sum(len(event.tokens) for event in await submission.batch())
    submission.cancel(request.id)
    await eventually(lambda: figure(metrics, "requests_running") == 0)
    count = figure(metrics, "step_tokens_sum")
    assert count is not None
    assert figure(metrics, "discarded_tokens_total") == count - taken


# a dead engine


async def test_a_killed_engine_fails_its_requests_and_is_replaced(make_service, make_request, metrics) -> None:
    service = make_service()
    pid = await started(service)
    submission = service.submit([make_request(HOLD)])
    await eventually(lambda: figure(metrics, "requests_running") == 1)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineUnavailable) as error:
        await collect(submission)
    assert error.value.retry_after is not None
    assert error.value.retry_after >= 1
    assert not service.ready
    assert (figure(metrics, "requests_running"), figure(metrics, "engine_up")) == (0, 0)
    assert figure(metrics, "kv_cache_bytes", state="free") == 0
    with pytest.raises(EngineUnavailable, match="a new one is being started"):
        service.submit([make_request(COUNT)])
    await eventually(lambda: service.ready)
    assert service.engine_pid not in (pid, None)
    assert list((await collect(service.submit([make_request(COUNT)]))).values()) == [[100, 101, 102]]
    assert figure(metrics, "engine_restarts_total") == 1


async def test_everyone_in_flight_hears_of_a_crash(make_service, make_request) -> None:
    service = make_service()
    pid = await started(service)
    holding = [service.submit([make_request(HOLD)]) for _ in range(5)]
    crashing = service.submit([make_request(CRASH)])
    answers = await asyncio.gather(*map(collect, [*holding, crashing]), return_exceptions=True)
    assert [type(answer) for answer in answers] == [EngineUnavailable] * 6
    await eventually(lambda: service.ready)
    assert not is_running(pid)


async def test_what_came_before_the_crash_is_still_handed_out(make_service, make_request, metrics) -> None:
    service = make_service()
    pid = await started(service)
    submission = service.submit([make_request(COUNT, max_tokens=2), make_request(HOLD)])
    await eventually(lambda: service.num_in_flight == 1)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not service.ready)
    events = await submission.batch()
    assert events[0].tokens == (100, 101)
    with pytest.raises(EngineUnavailable):
        await submission.batch()


async def test_counters_go_on_after_a_restart(make_service, make_request, metrics) -> None:
    service = make_service()
    pid = await started(service)
    await collect(service.submit([make_request(COUNT, max_tokens=5)]))
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not service.ready)
    assert figure(metrics, "step_tokens_sum") == 5
    await eventually(lambda: service.ready)
    await collect(service.submit([make_request(COUNT, max_tokens=2)]))
    assert figure(metrics, "step_tokens_sum") == 7


# a hung engine


async def test_a_stopped_engine_is_noticed_killed_and_replaced(make_service, make_request, metrics) -> None:
    service = make_service(engine_timeout_s=2.0)
    pid = await started(service)
    submission = service.submit([make_request(HOLD)])
    await eventually(lambda: submission.admitted)
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: service.state == "hung")
    assert not service.ready
    assert figure(metrics, "engine_up") == 0
    with pytest.raises(EngineUnavailable, match="no progress") as refused:
        service.submit([make_request(COUNT)])
    assert refused.value.retry_after is not None
    with pytest.raises(EngineUnavailable, match="no progress"):
        await collect(submission)
    await eventually(lambda: service.ready)
    assert service.engine_pid != pid
    assert not is_running(pid)


async def test_an_idle_engine_that_stops_is_noticed_too(make_service) -> None:
    service = make_service(engine_timeout_s=0.6)
    pid = await started(service)
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: not service.ready)
    await eventually(lambda: service.ready)
    assert service.engine_pid != pid


async def test_an_engine_that_comes_back_in_time_is_ready_again(make_service, make_request) -> None:
    service = make_service(engine_timeout_s=15.0)
    pid = await started(service)
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: service.state == "hung")
    os.kill(pid, signal.SIGCONT)
    await eventually(lambda: service.ready)
    assert service.engine_pid == pid
    assert list((await collect(service.submit([make_request(COUNT)]))).values()) == [[100, 101, 102]]


async def test_answering_pings_is_no_progress_while_work_waits(make_service, make_request) -> None:
    service = make_service(engine_timeout_s=1.0)
    pid = await started(service)
    with pytest.raises(EngineUnavailable, match="no progress"):
        await collect(service.submit([make_request(HOLD)]))
    await eventually(lambda: service.ready)
    assert service.engine_pid != pid


async def test_an_idle_engine_stays_ready_by_answering_pings(make_service) -> None:
    service = make_service(engine_timeout_s=1.0)
    pid = await started(service)
    await eventually(lambda: service._vigil._last_pong >= 25)  # one per twentieth of the timeout at most
    assert service.ready
    assert service.engine_pid == pid


# starting


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("fail", "no such model: /models/fake"),
        ("die", "the engine process ended with status 3 while loading"),
        ("bug", "KeyError: 'a bug of ours'"),
    ],
)
async def test_a_first_start_that_fails_says_why_in_one_line(make_service, script: str, reason: str) -> None:
    service = make_service(script)
    with pytest.raises(StartupFailed) as error:
        await service.start()
    assert str(error.value) == reason
    assert (service.state, service.reason, service.engine_pid) == ("failed", reason, None)


async def test_a_start_without_progress_is_given_up(make_service) -> None:
    service = make_service("hang", engine_timeout_s=0.5)
    with pytest.raises(StartupFailed, match="no progress"):
        await service.start()


async def test_a_command_that_does_not_exist_is_a_failed_start(metrics, make_service) -> None:
    service = make_service()
    service._command = ["/does/not/exist"]
    files = open_files()
    with pytest.raises(StartupFailed, match="can't be started"):
        await service.start()
    assert open_files() == files


async def test_loading_reports_progress(make_service, metrics) -> None:
    service = make_service("hang")
    heard = []
    service._on_progress = heard.append
    starting = asyncio.create_task(service.start())
    await eventually(lambda: heard)
    assert (heard[0].what, heard[0].fraction) == ("weights", 0.5)
    assert service.reason == "the engine is loading the model (50%)"
    with pytest.raises(EngineUnavailable, match="50%"):
        service.submit([])
    await service.stop()
    with pytest.raises(StartupFailed, match="stopped"):
        await starting


async def test_a_restart_that_fails_is_tried_again(make_service, monkeypatch) -> None:
    no_backoff(monkeypatch)
    service = make_service("normal,die,fail,normal")
    pid = await started(service)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: service.ready and service.engine_pid != pid)
    assert service.state == "ready"


async def test_after_several_failed_restarts_it_gives_up_and_says_so(make_service, make_request, monkeypatch) -> None:
    no_backoff(monkeypatch)
    service = make_service("normal,fail")
    os.kill(await started(service), signal.SIGKILL)
    await eventually(lambda: service.state == "failed")
    assert service.reason == "the engine can't be started again: no such model: /models/fake"
    with pytest.raises(EngineUnavailable, match="can't be started again") as error:
        service.submit([make_request(COUNT)])
    assert error.value.retry_after is None


# too much


async def test_more_than_may_wait_is_refused_with_a_time_to_come_back(make_service, make_request) -> None:
    service = make_service(max_num_seqs=2, max_waiting_requests=1)
    await service.start()
    held = service.submit([make_request(HOLD), make_request(HOLD)])
    with pytest.raises(TooBusy) as error:
        service.submit([make_request(COUNT), make_request(COUNT)])
    assert error.value.retry_after is not None
    assert error.value.retry_after >= 1
    assert len(await collect(service.submit([make_request(COUNT)]))) == 1
    held.cancel()
    assert len(await collect(service.submit([make_request(COUNT)] * 1 + [make_request(COUNT)]))) == 2


async def test_what_can_never_be_held_is_not_asked_to_come_back(make_service, make_request) -> None:
    service = make_service(max_num_seqs=2, max_waiting_requests=1)
    await service.start()
    with pytest.raises(InvalidValue, match="4 answers asked for at once; this server holds at most 3"):
        service.submit([make_request(COUNT) for _ in range(4)])


# the end


async def test_draining_refuses_new_work_and_lets_the_old_finish(make_service, make_request) -> None:
    service = make_service()
    await service.start()
    running = asyncio.create_task(collect(service.submit([make_request(COUNT, max_tokens=50)])))
    service.begin_drain()
    assert (service.state, service.ready) == ("draining", False)
    with pytest.raises(Draining):
        service.submit([make_request(COUNT)])
    assert await service.drained(30.0)
    assert list((await running).values()) == [list(range(100, 150))]


async def test_draining_ends_what_takes_too_long(make_service, make_request, metrics) -> None:
    service = make_service()
    await service.start()
    submission = service.submit([make_request(HOLD)])
    await eventually(lambda: figure(metrics, "requests_running") == 1)
    service.begin_drain()
    assert not await service.drained(0.05)
    with pytest.raises(Draining, match="before the answer was complete"):
        await collect(submission)
    await eventually(lambda: figure(metrics, "requests_running") == 0)


async def test_an_idle_server_is_drained_at_once(make_service) -> None:
    service = make_service()
    await service.start()
    service.begin_drain()
    assert await service.drained(0.0)


async def test_an_engine_that_dies_while_draining_is_not_replaced(make_service, make_request, tmp_path) -> None:
    service = make_service()
    pid = await started(service)
    submission = service.submit([make_request(HOLD)])
    service.begin_drain()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineUnavailable):
        await collect(submission)
    assert await service.drained(1.0)
    await eventually(service._supervisor.done)
    assert service.engine_pid is None
    assert service.state == "draining"
    assert (tmp_path / "starts").stat().st_size == 1


@pytest.mark.parametrize("behaviour", [COUNT, HOLD, BUSY, SPIN])
async def test_stopping_leaves_no_process_and_no_file_behind(make_service, make_request, behaviour: int) -> None:
    files = open_files()
    service = make_service()
    pid = await started(service)
    submission = service.submit([make_request(behaviour, max_tokens=1_000_000)])
    await eventually(lambda: submission.admitted or behaviour in (BUSY, SPIN))
    await service.stop()
    assert not is_running(pid)
    assert open_files() == files
    assert service.state == "stopped"
    with pytest.raises(Draining):
        await collect(submission)
    with pytest.raises(Draining):
        service.submit([make_request(COUNT)])


async def test_stopping_while_a_dead_engine_is_cleared_away_leaves_nothing_behind(make_service) -> None:
    files = open_files()
    service = make_service(engine_timeout_s=0.3)
    pid = await started(service)
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: service.state == "restarting")  # it is being killed now
    await service.stop()
    assert not is_running(pid)
    assert open_files() == files


async def test_restarts_leave_no_process_and_no_file_behind(make_service, monkeypatch) -> None:
    no_backoff(monkeypatch)
    service = make_service("normal,normal,die,normal")
    pids = [await started(service)]
    files = open_files()
    for _ in range(2):
        os.kill(pids[-1], signal.SIGKILL)
        await eventually(lambda: service.ready and service.engine_pid not in pids)
        pids.append(service.engine_pid)
    assert open_files() == files
    assert not any(map(is_running, pids[:-1]))


async def test_a_service_that_never_started_can_be_stopped(make_service) -> None:
    service = make_service()
    await service.stop()
    assert service.state == "stopped"


async def test_pictures_come_while_somebody_watches_and_after_a_restart_too(make_service) -> None:
    service = make_service()
    engine = await started(service)
    assert service.picture == ()
    service.watch(1)
    await eventually(lambda: service.picture)
    os.kill(engine, signal.SIGKILL)
    await eventually(lambda: not service.ready)
    await eventually(lambda: service.ready and service.picture)


# who is to blame


async def fails(submission: Submission) -> type[Exception]:
    with pytest.raises((EngineUnavailable, CondemnedRequest)) as error:
        await collect(submission)
    return type(error.value)


async def test_who_breaks_the_engine_twice_is_refused_and_who_was_beside_it_is_served(
    make_service, make_request, metrics
) -> None:
    service = make_service()
    await service.start()
    innocent = [make_request(COUNT, max_tokens=1_000_000), make_request(HOLD)]
    beside = [service.submit([request]) for request in innocent]
    await eventually(lambda: figure(metrics, "requests_running") == 2)
    assert await fails(service.submit([make_request(CRASH)])) is EngineUnavailable
    assert [await fails(each) for each in beside] == [EngineUnavailable] * 2
    await eventually(lambda: service.ready)
    with service.submit([make_request(HOLD, max_tokens=4)]) as other:  # never seen before, so others may join it
        await eventually(lambda: other.admitted)
        guilty, served = service.submit([make_request(CRASH)]), service.submit([make_request(COUNT, max_tokens=5)])
        assert not guilty.admitted
        assert figure(metrics, "requests_running") == 1
    assert await fails(guilty) is CondemnedRequest
    assert list((await collect(served)).values()) == [[100, 101, 102, 103, 104]], "it waited for the next engine"
    with pytest.raises(CondemnedRequest):
        service.submit([make_request(CRASH)])
    again = service.submit([make_request(COUNT, max_tokens=1_000_000)])
    await eventually(lambda: again.admitted)


async def test_who_left_an_engine_that_hangs_is_to_blame_all_the_same(make_service, make_request) -> None:
    service = make_service(engine_timeout_s=1.0)
    await service.start()
    for _ in range(2):
        pid = service.engine_pid
        submission = service.submit([make_request(BUSY)])
        await eventually(lambda: submission.admitted)  # noqa: B023
        submission.close()
        await eventually(lambda: service.ready and service.engine_pid != pid)  # noqa: B023
    with pytest.raises(CondemnedRequest):
        service.submit([make_request(BUSY)])


async def test_who_waits_for_an_engine_that_never_comes_hears_of_it(make_service, make_request, monkeypatch) -> None:
    no_backoff(monkeypatch)
    service = make_service("normal,normal,fail")
    await service.start()
    assert await fails(service.submit([make_request(CRASH)])) is EngineUnavailable
    await eventually(lambda: service.ready)
    guilty, waiting = service.submit([make_request(CRASH)]), service.submit([make_request(COUNT)])
    assert await fails(guilty) is CondemnedRequest
    assert await fails(waiting) is EngineUnavailable
    assert service.state == "failed"


async def test_who_waits_when_the_engine_dies_at_the_end_of_the_day_hears_of_it(make_service, make_request) -> None:
    service = make_service()
    await service.start()
    assert await fails(service.submit([make_request(CRASH)])) is EngineUnavailable
    await eventually(lambda: service.ready)
    guilty, waiting = service.submit([make_request(CRASH)]), service.submit([make_request(COUNT)])
    service.begin_drain()
    assert service.reason == "the server is shutting down"
    assert await fails(guilty) is CondemnedRequest
    assert await fails(waiting) is EngineUnavailable
    assert await service.drained(0.0)


async def test_those_who_wait_outside_are_among_the_waiting(make_service, make_request, metrics) -> None:
    service = make_service()
    pid = await started(service)
    with service.submit([make_request(HOLD)]) as held:
        await eventually(lambda: held.admitted)
        os.kill(pid, signal.SIGKILL)
        assert await fails(held) is EngineUnavailable
    await eventually(lambda: service.ready)
    with service.submit([make_request(HOLD, max_tokens=9)]) as running, service.submit([make_request(HOLD)]):
        await eventually(lambda: running.admitted)
        await eventually(lambda: figure(metrics, "requests_waiting") == 1)
    await eventually(lambda: figure(metrics, "requests_waiting") == 0)


async def test_what_is_wrong_with_the_disk_is_said_once(make_service, make_request, metrics, caplog) -> None:
    service = make_service()
    await started(service)
    for request in (make_request(WARN), make_request(WARN), make_request(COUNT, max_tokens=5)):
        await collect(service.submit([request]))
    assert [record.message for record in caplog.records].count("the disk is full") == 1
    assert figure(metrics, "prefix_cache_disk_bytes") == 4096
    assert (figure(metrics, "prefix_cache_disk_blocks_total", action="written") or 0) >= 2
