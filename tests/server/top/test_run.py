"""`kvell top` as it is used: in a real terminal whose server goes and comes again, and without one."""

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from server.top import run
from tests.helpers.live_looks import AT_WORK, IDLE, free_port, serving_looks
from tests.helpers.live_server import PYTHON, environment

# what `kvell top` does, without the seconds that the rest of the command line takes to import
TOP = [PYTHON, "-c", "import sys; from server.top import run; run(sys.argv[1], api_key=None)"]

PATIENCE_SECONDS = 30

pytestmark = pytest.mark.e2e


class Terminal:
    """`kvell top` in a terminal of its own; what it shows is read with patience."""

    def __init__(self, url: str) -> None:
        self.end, inner = pty.openpty()
        env = environment(TERM="xterm-256color", COLUMNS="60", LINES="20")

        def settle() -> None:
            os.login_tty(inner)  # as its controlling terminal, so that Ctrl-C is a signal
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs inherit that it is ignored

        self.process = subprocess.Popen([*TOP, url], env=env, preexec_fn=settle)
        os.close(inner)
        self.shown = ""
        self._seen = 0  # characters, up to the end of what was waited for

    def until(self, words: str) -> None:
        """Until these are on the screen, counted from the last time."""
        self._read_while(lambda: words not in self.shown[self._seen :], f"{words!r} never came")
        self._seen = self.shown.index(words, self._seen) + len(words)

    def press(self, key: str) -> int:
        """The exit status after this key."""
        os.write(self.end, key.encode())
        self._read_while(lambda: self.process.poll() is None, f"it does not end after {key!r}")
        return self.process.wait(PATIENCE_SECONDS)

    def _read_while(self, waiting: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while waiting():
            readable, _, _ = select.select([self.end], [], [], 0.05)
            if readable:
                try:
                    self.shown += os.read(self.end, 65536).decode("utf-8", "replace")
                except OSError:  # the other end is closed
                    self.process.wait(PATIENCE_SECONDS)
            assert time.monotonic() < deadline, f"{problem}: {self.shown[-2000:]}"


@pytest.fixture
def terminal() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for each in opened:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(PATIENCE_SECONDS)
        os.close(each.end)


def test_it_watches_through_a_restart_until_q(terminal: list[Terminal]) -> None:
    port = free_port()
    top = Terminal(f"http://127.0.0.1:{port}")
    terminal.append(top)
    top.until("no connection")
    with serving_looks(AT_WORK, port=port):
        top.until("123.4")
        top.until("█")
    top.until("tiny: no connection")
    with serving_looks(IDLE, port=port):
        top.until("free \x1b[0m\x1b[1m1024")
        assert top.press("q") == 0
    assert "Traceback" not in top.shown


def test_ctrl_c_leaves_without_a_word(terminal: list[Terminal]) -> None:
    with serving_looks(AT_WORK) as server:
        top = Terminal(server.url)
        terminal.append(top)
        top.until("123.4")
        assert top.press("\x03") == 0
    assert "Traceback" not in top.shown


def test_without_a_terminal_it_is_one_look_in_plain_text() -> None:
    with serving_looks(AT_WORK) as server:
        ended = subprocess.run([*TOP, server.url], env=environment(), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "decode 123.4 tokens/s" in ended.stdout
    assert "\x1b" not in ended.stdout


@pytest.mark.parametrize(("url", "said"), [("http://127.0.0.1:1", "no server answers"), ("nowhere", "http://")])
def test_where_nobody_answers_it_says_so_in_one_line(url: str, said: str) -> None:
    with pytest.raises(httpx.HTTPError, match=said):
        run(url, api_key=None)
