"""The startup benchmark waits for the right moment, stops what it started, and takes medians."""

import http.server
import signal
import socket
import subprocess
import sys
import threading

import pytest

from benchmarks.startup import NotReady, Run, run_once, summarise

# Answers 503 twice and then 200, as a server that loads a model does. On SIGTERM it ends with the given code, or with 9
# if it was taken for ready too soon.
SERVER = """
import http.server, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        self.send_response(200 if Handler.asked > 2 else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *args):
        pass
signal.signal(signal.SIGTERM, lambda *args: sys.exit(%d if Handler.asked > 2 else 9))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("code", [0, 3])
def test_a_run_ends_when_the_server_is_ready_and_reports_how_it_stopped(port: int, code: int) -> None:
    run = run_once([sys.executable, "-c", SERVER % code, str(port)], f"http://127.0.0.1:{port}/", timeout_s=60)
    assert run.exit_code == code
    assert run.ready_seconds > 0
    assert run.stop_seconds > 0


def test_a_server_that_ends_early_is_reported_with_its_code(port: int) -> None:
    with pytest.raises(NotReady, match="code 7"):
        run_once([sys.executable, "-c", "raise SystemExit(7)"], f"http://127.0.0.1:{port}/", timeout_s=60)


def test_a_server_that_never_answers_is_given_up_and_killed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remember(*args: object, **kwargs: object) -> "subprocess.Popen[bytes]":
        started.append(popen(*args, **kwargs))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    with pytest.raises(NotReady, match=r"not ready within 0\.05 s"):
        run_once([sys.executable, "-c", "import signal; signal.pause()"], f"http://127.0.0.1:{port}/", timeout_s=0.05)
    assert started[0].returncode == -signal.SIGKILL


def test_another_server_at_the_address_is_noticed() -> None:
    handler = type("Handler", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *args: None})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as other:
        answering = threading.Thread(target=other.handle_request)
        answering.start()
        with pytest.raises(NotReady, match="already answers"):
            run_once(["false"], f"http://127.0.0.1:{other.server_port}/", timeout_s=1)
        answering.join()


def test_the_summary_takes_medians() -> None:
    runs = [Run(3.0, 0.1, 0), Run(1.0, 0.5, 0), Run(2.0, 0.2, 1)]
    figures = summarise(runs)
    assert (figures["ready_seconds"], figures["stop_seconds"]) == (2.0, 0.2)
    assert figures["all_ready_seconds"] == [3.0, 1.0, 2.0]
    assert figures["exit_codes"] == [0, 0, 1]
