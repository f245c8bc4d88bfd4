"""The engine's process, real: a tiny model on disk, the real command, the real socket."""

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from model.sampling_params import SamplingParams
from server.config import EngineConfig, ServerConfig
from server.engine.compose import compose
from server.engine.constraint import Grammars
from server.engine.errors import StartupFailed
from server.engine.main import Channel, Core, Watcher, serve
from server.engine.process import ENGINE_COMMAND
from server.engine.request import Constraint, Request
from server.engine.service import EngineService
from server.engine.wire import (
    Begun,
    Cancel,
    Ping,
    Pong,
    Ready,
    Start,
    Step,
    Submit,
    ToApi,
    Watch,
    frame,
    receive_bytes,
    to_api,
)
from server.metrics import Metrics
from tests.helpers.checkpoints import CONFIG, VOCAB, tiny_hf
from tests.helpers.fake_engine import FakeCore
from tests.helpers.waiting import eventually, eventually_blocking, is_running
from tests.helpers.worlds import make_world

ROOT = Path(__file__).resolve().parents[3]
MIB = 2**20


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_hf(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def engine_config(model_dir: Path) -> EngineConfig:
    return EngineConfig(model_path=str(model_dir), dtype="float64", kv_cache_bytes=8 * MIB, threads=1)


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    return Metrics()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(engine_config: EngineConfig, metrics: Metrics) -> AsyncIterator[EngineService]:
    """The real thing; starting it takes seconds, so it is shared."""
    service = EngineService(ServerConfig(model="tiny", engine=engine_config), metrics=metrics)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        await service.start()
        yield service
    await service.stop()


# the shared service lives on one event loop
in_one_loop = pytest.mark.asyncio(loop_scope="module")


def greedy(name: str, prompt: tuple[int, ...], *, max_tokens: int = 12) -> Request:
    return Request(name, prompt, max_tokens, SamplingParams(temperature=0.0))


def prompts(count: int) -> list[tuple[int, ...]]:
    return [tuple((7 * i + 3 * j) % VOCAB for j in range(1 + 5 * i)) for i in range(count)]


def answer_alone(engine: EngineConfig, request: Request) -> list[int]:
    """What the same engine says without a process around it."""
    core, _ = compose(engine, lambda what, fraction: None)
    core.submit([request])
    tokens: list[int] = []
    while core.has_work:
        tokens += [token for event in core.step().events for token in event.tokens]
    return tokens


# the real engine behind the real service


@in_one_loop
async def test_the_process_says_what_the_engine_says(service: EngineService, engine_config: EngineConfig) -> None:
    requests = [greedy(f"r{i}", prompt) for i, prompt in enumerate(prompts(6))]
    tokens: dict[str, list[int]] = {}
    async for event in service.submit(requests):
        tokens.setdefault(event.request_id, []).extend(event.tokens)
    assert tokens == {request.id: answer_alone(engine_config, request) for request in requests}
    assert len({tuple(its) for its in tokens.values()}) > 1


@in_one_loop
async def test_ready_says_what_was_loaded(service: EngineService) -> None:
    info = service.info
    assert info is not None
    assert (info.device, info.backend, info.threads) == ("cpu", "torch", 1)
    assert (info.dtype, info.kv_cache_dtype) == ("float64", "float64")
    assert info.max_model_len == CONFIG["max_position_embeddings"]
    assert 0 < info.cache_bytes <= 8 * MIB
    assert info.cache_tokens >= info.max_model_len
    assert info.load_seconds > 0


@in_one_loop
async def test_a_cancel_frees_its_blocks_without_further_traffic(service: EngineService, metrics: Metrics) -> None:
    def blocks(*states: str) -> float:
        values = [metrics.registry.get_sample_value("kvell_kv_cache_blocks", {"state": state}) for state in states]
        return sum(value or 0.0 for value in values)

    await eventually(lambda: blocks("free") > 0)
    everything = blocks("used", "cached", "free")
    submission = service.submit([greedy("long", (1, 2, 3), max_tokens=250)])
    await submission.batch()
    submission.cancel()
    await eventually(lambda: blocks("used") == 0)
    assert blocks("cached", "free") == everything > 0


@in_one_loop
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_engine_ignores_what_the_terminal_sends_to_the_group(
    service: EngineService, number: signal.Signals
) -> None:
    pid = service.engine_pid
    assert pid is not None
    os.kill(pid, number)
    finishes = [event.finish async for event in service.submit([greedy(f"after {number}", (1,))])]
    assert finishes[-1] == "length"
    assert service.engine_pid == pid


@in_one_loop
async def test_a_killed_engine_loads_again_and_says_the_same(service: EngineService) -> None:
    answers = []
    for name in ("before", "after"):
        answers.append([token async for event in service.submit([greedy(name, (5, 6, 7))]) for token in event.tokens])
        if name == "before":
            assert service.engine_pid is not None
            os.kill(service.engine_pid, signal.SIGKILL)
            await eventually(lambda: not service.ready)
            await eventually(lambda: service.ready)
    assert answers[0] == answers[1]
    assert len(answers[0]) == 12


@in_one_loop
async def test_what_the_user_can_mend_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    config = ServerConfig(model="none", engine=EngineConfig(model_path="/does/not/exist"))
    with pytest.raises(StartupFailed, match="/does/not/exist") as error:
        await EngineService(config, metrics=Metrics()).start()
    assert "\n" not in str(error.value)
    assert "Traceback" not in capfd.readouterr().err


# the end of its API process


@pytest.fixture
def child_env() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("load", ["idle", "busy"])
def test_an_engine_ends_with_its_api_process(model_dir: Path, child_env: dict[str, str], load: str) -> None:
    api = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/helpers/an_api_process.py"), str(model_dir), load],
        stdout=subprocess.PIPE,
        env=child_env,
    )
    with api:
        assert api.stdout is not None
        engine_pid = int(api.stdout.readline())
        assert is_running(engine_pid)
        api.kill()
    eventually_blocking(lambda: not is_running(engine_pid), within_s=5.0)


RawEngine = tuple[socket.socket, "subprocess.Popen[bytes]"]


@pytest.fixture
def raw_engine(child_env: dict[str, str], tmp_path: Path) -> Iterator[RawEngine]:
    """The real command with a socket of ours, before any message; its standard error goes to tmp_path."""
    ours, theirs = socket.socketpair()
    with theirs, (tmp_path / "stderr").open("wb") as stderr:
        command = [*ENGINE_COMMAND, "--fd", str(theirs.fileno())]
        child = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=child_env, stderr=stderr)
    yield ours, child
    ours.close()
    child.kill()
    child.wait()


def test_the_end_of_file_is_enough_to_end_an_engine(raw_engine: RawEngine) -> None:
    ours, child = raw_engine
    ours.close()
    assert child.wait(timeout=30) == 0


def test_an_engine_that_gets_nonsense_ends(raw_engine: RawEngine, tmp_path: Path) -> None:
    ours, child = raw_engine
    ours.sendall(b"\x03\x00\x00\x00abc")
    assert child.wait(timeout=30) == 1
    assert "WireError" in (tmp_path / "stderr").read_text()


def test_the_engine_dies_with_its_parent_even_without_a_socket(child_env: dict[str, str]) -> None:
    """For the moments in which no Python thread of the engine gets to run."""
    child = "import signal; from server.engine.main import die_with_parent; die_with_parent(); print(1); signal.pause()"
    parent = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-uc', {child!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, env=child_env) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    eventually_blocking(lambda: not is_running(pid), within_s=5.0)


def next_message(sock: socket.socket) -> ToApi:
    body = receive_bytes(sock)
    assert body is not None
    return to_api(body)


def until(sock: socket.socket, kind: type) -> list[ToApi]:
    """Messages up to the first of this kind."""
    messages = [next_message(sock)]
    while not isinstance(messages[-1], kind):
        messages.append(next_message(sock))
    return messages


def test_the_order_of_messages(raw_engine: RawEngine, engine_config: EngineConfig) -> None:
    ours, _ = raw_engine
    ours.sendall(frame(Start(engine_config)))
    loading = until(ours, Ready)
    assert [progress.fraction for progress in loading[:-1]] == sorted(progress.fraction for progress in loading[:-1])
    assert loading[-2].fraction == 1.0
    first = next_message(ours)
    assert isinstance(first, Step)
    assert (first.events, first.stats.running) == ((), 0)
    ours.sendall(frame(Ping(7)))
    assert next_message(ours) == Pong(7)
    ours.sendall(frame(Submit((greedy("a", (1, 2), max_tokens=2), greedy("b", (3,), max_tokens=3)))))
    assert next_message(ours) == Begun(("a", "b"))
    steps = [next_message(ours) for _ in range(3)]
    assert [[(event.request_id, event.finish) for event in step.events] for step in steps] == [
        [("a", None), ("b", None)],
        [("a", "length"), ("b", None)],
        [("b", "length")],
    ]
    assert [step.stats.running for step in steps] == [2, 1, 0]
    ours.sendall(frame(Cancel(("nobody",))))
    idle = next_message(ours)
    assert isinstance(idle, Step)
    assert (idle.events, idle.stats.running, idle.stats.decode_tokens) == ((), 0, 0)


# the channel alone


def test_a_channel_hands_over_messages_in_order_and_sees_the_end() -> None:
    ours, theirs = socket.socketpair()
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    with ours, theirs:
        channel = Channel(theirs, on_end=ended.put)
        for number in range(100):
            ours.sendall(frame(Ping(number)))
        assert [channel.receive() for _ in range(100)] == [Ping(number) for number in range(100)]
        assert not channel.waiting()
        ours.close()
        assert ended.get(timeout=30) == 0


def test_writing_to_nobody_is_an_end_not_a_crash() -> None:
    ours, theirs = socket.socketpair()
    ends: queue.SimpleQueue[int] = queue.SimpleQueue()
    with theirs:
        channel = Channel(theirs, on_end=ends.put)
        ours.close()
        channel.send(Pong(1))
        assert [ends.get(timeout=30), ends.get(timeout=30)] == [0, 0]


def test_a_loop_with_nothing_to_do_wakes_for_a_deadline() -> None:
    compiling = threading.Event()

    def compile_for_ever() -> None:
        compiling.wait(60)

    world = make_world(grammars=Grammars(compile_for_ever))
    world.engine._clock = time.monotonic
    world.engine.cancel = raise_exit  # type: ignore[method-assign]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs, on_end=lambda status: None)
        loop = threading.Thread(target=serve_until_exit, args=(channel, world.engine))
        loop.start()
        assert isinstance(to_api(receive_bytes(ours) or b""), Step)
        limit = time.monotonic() + 0.05
        timed = Request("x", (1, 2), 5, SamplingParams(), deadline=limit, constraint=Constraint("regex", "a"))
        ours.sendall(frame(Submit((timed,))))
        ours.settimeout(30)
        step = to_api(receive_bytes(ours) or b"")
        assert isinstance(step, Step)
        assert [(event.request_id, event.ended_by) for event in step.events] == [("x", "deadline")]
        assert time.monotonic() >= limit
        ours.sendall(frame(Cancel(("x",))))
        loop.join(30)
    compiling.set()


def serve_until_exit(channel: Channel, core: Core) -> None:
    with contextlib.suppress(SystemExit):
        serve(channel, core)


def raise_exit(request_ids: Sequence[str]) -> None:
    raise SystemExit


def test_importing_the_entry_point_imports_no_torch(child_env: dict[str, str]) -> None:
    """It has to be mortal before it does anything slow."""
    code = "import sys, server.engine.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=child_env, check=False).returncode == 0


def test_the_service_imports_no_torch(child_env: dict[str, str]) -> None:
    code = "import sys, server.engine.service, server.metrics, server.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=child_env, check=False).returncode == 0


def test_nobody_watches_nothing_is_drawn_and_a_watcher_sees_how_it_ended() -> None:
    now = 0.0
    core, watcher = FakeCore(), Watcher(lambda: now)
    assert watcher.picture(core, last=True) is None
    watcher.set(Watch(500))
    assert watcher.picture(core, last=False) == core.picture()
    assert watcher.picture(core, last=False) is None
    assert watcher.picture(core, last=True) == core.picture()
    now = 0.5
    assert watcher.picture(core, last=False) == core.picture()
    watcher.set(Watch(0))
    assert watcher.picture(core, last=True) is None
