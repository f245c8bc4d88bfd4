"""Servers under test: started once, measured from their start to the first streamed text, and ended."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.peer import servers
from benchmarks.peer.contests import MeasureFailed
from benchmarks.peer.servers import Command, Fleet, Server, burst
from tests.helpers.waiting import is_running

# Answers 503 until it was asked so many times, then streams three tokens for any completion, the first one empty.
SERVER = """
import http.server, json, pathlib, sys
log = pathlib.Path(sys.argv[2])
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    protocol_version = "HTTP/1.1"
    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def ready(self):
        Handler.asked += 1
        return Handler.asked > 3
    def do_GET(self):
        if self.path == "/v1/models":
            self.answer(200, b'{"data": [{"id": "bench"}]}')
        else:
            self.answer(200 if self.path == "/health" and self.ready() else 503, b"")
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with log.open("a") as file:
            file.write(json.dumps(asked) + "\\n")
        if not self.ready():
            return self.answer(503, b"{}")
        pieces = ["", "a", "b"]
        usage = {"prompt_tokens": 5, "completion_tokens": asked["max_tokens"]}
        events = [{"choices": [{"text": piece}]} for piece in pieces] + [{"choices": [], "usage": usage}]
        body = "".join(f"data: {json.dumps(event)}\\n\\n" for event in events) + "data: [DONE]\\n\\n"
        self.answer(200, body.encode(), "text/event-stream")
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def command(log: Path) -> Command:
    return Command(lambda port: [sys.executable, "-c", SERVER, str(port), str(log)], "/health")


def test_the_first_token_is_waited_for_through_refusals(command: Command, log: Path) -> None:
    with Server(command) as server:
        assert 0 < server.first_token_seconds(60) < 60
        pid = server._process.pid
    assert not is_running(pid)
    assert len(log.read_text().splitlines()) == 4, "three refusals, then the stream"


def test_a_server_that_ends_or_never_answers_is_given_up(log: Path) -> None:
    ends = Command(lambda port: [sys.executable, "-c", "raise SystemExit(7)"], "/")
    with Server(ends) as gone, pytest.raises(MeasureFailed, match="code 7"):
        gone.first_token_seconds(60)
    pause = Command(lambda port: [sys.executable, "-c", "import signal; signal.pause()"], "/")
    with Server(pause) as silent, pytest.raises(MeasureFailed, match=r"within 0\.3 s"):
        silent.wait_ready(0.3)
    with pytest.raises(MeasureFailed, match="could not be started"):
        Server(Command(lambda port: ["/nonexistent/llama-server"], "/"))


def test_a_fleet_starts_each_server_once_and_ends_them_all(
    command: Command, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[str] = []
    monkeypatch.setattr(servers, "burst", lambda url, **sizes: warmed.append(url))
    fleet = Fleet()
    url = fleet.url("one", command)
    assert fleet.url("one", command) == url
    other = fleet.url("two", command)
    assert other != url
    assert warmed == [url, other]
    pids = [server._process.pid for server in fleet._running.values()]
    fleet.close()
    assert not any(is_running(pid) for pid in pids)


def test_a_burst_is_one_request_of_each_client_with_prompts_of_its_own(command: Command, log: Path) -> None:
    with Server(command) as server:
        server.wait_ready(60)
        figures = burst(server.url, clients=3, words=20, new=9, shared=8, seed=5)
    asked = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(asked) == 3, "no warm-up: that would put the shared words into a prefix cache"
    assert all(each["max_tokens"] == 9 and each["stream"] and each["ignore_eos"] for each in asked)
    words = [each["prompt"].split() for each in asked]
    assert len({tuple(each) for each in words}) == 3
    assert len({tuple(each[:8]) for each in words}) == 1
    assert figures["tok_s"] > 0
    assert figures["first_token_s"] > 0
    assert figures["input_tokens"] == 15


def test_a_burst_that_brings_too_few_tokens_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "json_of", lambda command: {"output_tokens": 26})
    with pytest.raises(MeasureFailed, match="26 tokens came, not 3 times 9"):
        burst("http://127.0.0.1:1", clients=3, words=20, new=9)
