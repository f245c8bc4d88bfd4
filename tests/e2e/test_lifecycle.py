"""The beginning and the end of a server: start-up failures, keys, a killed engine, draining."""

import contextlib
import http.client
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.live_server import LiveServer, at_once, children, is_over, open_pidfd, run_command
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = pytest.mark.e2e

SMALL = ("--threads", "1", "--kv-cache-memory", "64MiB")
LONG = {"prompt": "go on", "max_tokens": 2000, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_dir(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def server(model: Path) -> Iterator[LiveServer]:
    with LiveServer(str(model), *SMALL) as live:
        yield live.wait_ready()


def stream_to_end(server: LiveServer, began: threading.Barrier | None = None, **fields: Any) -> tuple[Any, float]:
    """The whole answer and when it ended; `began` is passed when three events have come."""
    with server.stream("POST", "/v1/completions", LONG | fields) as opened:
        opened.read_events(3)
        if began:
            began.wait()
        return opened.rest(), time.monotonic()


def test_a_killed_engine_fails_its_requests_at_once_and_another_takes_over(server: LiveServer) -> None:
    began = threading.Barrier(9)
    killed_at: list[float] = []

    def kill() -> None:
        began.wait()
        killed_at.append(time.monotonic())
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        server.until(lambda: server.request("GET", "/ready").status == 503, "/ready stayed 200")

    pidfd = open_pidfd(server.engine_pid)
    *answers, problem = at_once(*[lambda: stream_to_end(server, began)] * 8, kill)
    assert problem is None
    for answer, ended in answers:
        *_, last, done = answer.events()
        assert done == "[DONE]"
        assert last["error"]["code"] == "engine_unavailable"
        assert ended - killed_at[0] < 2
    server.until(lambda: server.request("GET", "/ready").status == 200, "no new engine")
    assert server.figure("kvell_requests_running") == 0
    assert stream_to_end(server, max_tokens=5)[0].events()[-1] == "[DONE]"
    assert server.figure("kvell_engine_restarts_total") == 1


def test_health_and_metrics_answer_while_there_is_no_engine(server: LiveServer) -> None:
    signal.pidfd_send_signal(open_pidfd(server.engine_pid), signal.SIGKILL)
    server.until(lambda: server.request("GET", "/ready").status == 503, "/ready stayed 200")
    assert server.request("GET", "/health").status == 200
    assert server.figure("kvell_engine_up") == 0
    refused = server.request("POST", "/v1/completions", {"prompt": "a"})
    assert (refused.status, refused.json()["error"]["code"]) == (503, "engine_unavailable")
    assert int(refused.headers["retry-after"]) >= 1
    assert server.request("POST", "/tokenize", {"prompt": "a"}).status == 200


def test_sigterm_lets_running_streams_finish_while_new_work_gets_503(server: LiveServer) -> None:
    with server.stream("POST", "/v1/completions", LONG | {"max_tokens": 900}) as opened:
        opened.read_events(3)
        server.signal(signal.SIGTERM)
        server.until(lambda: server.request("GET", "/ready").status == 503, "/ready stayed 200")
        for number in range(10):
            # the socket stays open for as long as the stream runs, not just for a moment
            opened.read_events(30 * number)
            late = server.request("POST", "/v1/completions", {"prompt": "late"})
            assert (late.status, late.json()["error"]["code"]) == (503, "shutting_down")
            assert server.request("GET", "/health").status == 200
        answer = opened.rest()
    assert answer.events()[-1] == "[DONE]"
    assert answer.events()[-2]["choices"][0]["finish_reason"] == "length"
    assert server.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


def test_an_idle_server_ends_at_once_with_either_signal(model: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with LiveServer(str(model), *SMALL) as live:
            live.wait_ready()
            live.signal(number)
            assert live.wait() == 0
            assert not any("Traceback" in line for line in live.errors)


def test_the_drain_timeout_cuts_what_still_runs_with_an_error_event(model: Path) -> None:
    with LiveServer(str(model), *SMALL, "--drain-timeout", "0.2") as live:
        live.wait_ready()
        began = threading.Barrier(2)

        def end() -> None:
            began.wait()
            live.signal(signal.SIGTERM)

        (answer, _), _ = at_once(lambda: stream_to_end(live, began), end)
        assert answer.events()[-1] == "[DONE]"
        assert answer.events()[-2]["error"]["code"] == "shutting_down"
        assert live.wait() == 0


def test_a_second_signal_ends_the_process_without_waiting(model: Path) -> None:
    with LiveServer(str(model), *SMALL) as live:
        live.wait_ready()
        with live.stream("POST", "/v1/completions", LONG) as opened:
            opened.read_events(3)
            engine = open_pidfd(live.engine_pid)
            live.signal(signal.SIGTERM)
            live.until(lambda: live.request("GET", "/ready").status == 503, "/ready stayed 200")
            live.signal(signal.SIGTERM)
            assert live.wait() == 128 + signal.SIGTERM
            with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
                opened.rest()
        live.until(lambda: is_over(engine), "the engine outlived its server")


def test_sigterm_while_the_engine_loads_ends_with_0(model: Path) -> None:
    with LiveServer(str(model), *SMALL) as live:
        live.until(lambda: bool(children(live.process.pid)), "no engine was started")
        live.signal(signal.SIGTERM)
        assert live.wait() == 0
        assert not any("Traceback" in line for line in live.errors)


def test_before_the_engine_is_ready_the_server_answers_and_says_so(model: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with LiveServer(str(model), *SMALL, port=port) as live:
        live.until(lambda: answers(live, "/health") == 200, "it never answered")
        assert answers(live, "/ready") == 503
        assert answers(live, "/v1/models") == 503
        assert live.request("POST", "/v1/completions", {"prompt": "a"}).status == 503
        live.wait_ready()
        assert answers(live, "/ready") == 200


def answers(live: LiveServer, path: str) -> int | None:
    """The status, or None while nobody listens."""
    try:
        return live.request("GET", path).status
    except ConnectionRefusedError:
        return None


def one_line(errors: str) -> str:
    """The error, which must be the only line."""
    (line,) = errors.strip().split("\n")
    assert line.startswith("kvell: ")
    return line


def test_a_port_in_use_is_found_before_anything_is_loaded(model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run_command("serve", "no/such/model", "--port", str(port))
    assert ended.returncode == 1
    assert str(port) in one_line(ended.stderr)
    assert "in use" in ended.stderr


def test_a_model_that_is_not_there_is_one_line() -> None:
    ended = run_command("serve", "no/such/model.gguf", "--port", "0")
    assert ended.returncode == 1
    assert "no/such/model.gguf" in one_line(ended.stderr)


@pytest.mark.parametrize("spoil", ["truncated weights", "no tokenizer", "unknown family", "bad json"])
def test_a_checkpoint_that_can_not_be_served_is_one_line(tmp_path: Path, spoil: str) -> None:
    directory = make_model_dir(tmp_path / "bad")
    if spoil == "truncated weights":
        weights = directory / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif spoil == "no tokenizer":
        (directory / "tokenizer.json").unlink()
    elif spoil == "unknown family":
        config = directory / "config.json"
        config.write_text(config.read_text().replace('"llama"', '"zebra"'))
    else:
        (directory / "config.json").write_text("{")
    ended = run_command("serve", str(directory), "--port", "0", *SMALL)
    assert ended.returncode == 1
    assert one_line(ended.stderr)


@pytest.mark.parametrize(
    ("arguments", "env", "named"),
    [
        (("--port", "99999"), {}, "--port"),
        ((), {"KVELL_API_KEY": ""}, "KVELL_API_KEY"),
    ],
)
def test_a_bad_setting_is_one_line_and_exit_code_2(arguments: tuple[str, ...], env: dict[str, str], named: str) -> None:
    ended = run_command("serve", *arguments, env=env)
    assert ended.returncode == 2
    assert named in one_line(ended.stderr)
