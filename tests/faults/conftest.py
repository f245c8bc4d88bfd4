"""How often each fault is repeated, and a table of what was seen.

FAULT_REPEATS=20 FAULT_SEED=1 python -m pytest tests/faults    (make test-faults)
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.arena import FAULTY, SMALL, Arena, Heard
from tests.helpers.live_server import LiveServer
from tests.helpers.tiny_model_dir import make_model_dir

REPEATS = int(os.environ.get("FAULT_REPEATS", "1"))
SEED = int(os.environ.get("FAULT_SEED", "0"))

rows: list[str] = []  # of the table


class Report:
    """What was seen of one fault over all its rounds."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.recovery_s: list[float] = []

    def hear(self, *heard: Heard) -> None:
        """What clients heard."""
        self.seen.update(f"{each.outcome} {each.code}" if each.code else each.outcome for each in heard)

    def in_words(self) -> str:
        """Two columns."""
        heard = ", ".join(f"{count} {what}" for what, count in sorted(self.seen.items()))
        times = sorted(self.recovery_s)
        return f"{heard} | {times[len(times) // 2]:.1f} s, {times[-1]:.1f} s" if times else f"{heard} | at once"

    @contextmanager
    def recovering(self) -> Iterator[None]:
        """From the fault to its end."""
        began = time.monotonic()
        yield
        self.recovery_s.append(time.monotonic() - began)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Iterator[Report]:
    report = Report()
    yield report
    rows.append(f"| {request.node.name} | {report.in_words()} | {REPEATS} |")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if REPEATS > 1:
        terminalreporter.write_line("\n| Fault | What clients heard | Back after, median and longest | Rounds |")
        terminalreporter.write_line("\n".join(rows))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_dir(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def arena(model: Path) -> Iterator[Arena]:
    """A server that obeys faults."""
    with LiveServer(str(model), *SMALL, command=FAULTY) as live:
        yield Arena(live.wait_ready(), seed=SEED)
