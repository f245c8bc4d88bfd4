"""The soak reads /proc right, counts failures, and judges by medians."""

import io
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from rich.console import Console

from benchmarks.soak import (
    MIB,
    PROMPTS,
    ask_many,
    cpu_seconds,
    growth,
    idle_share,
    judge,
    measure,
    process_tree,
    resident_bytes,
)
from tests.helpers.tiny_http import TinyServer, response

GRANDCHILD = "import sys; print('up', flush=True); sys.stdin.read()"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {GRANDCHILD!r}])"


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A process with one child, both waiting for the end of their input."""
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.stdin.close()


def test_the_tree_is_the_process_and_its_descendants(family: subprocess.Popen[bytes]) -> None:
    tree = process_tree([family.pid])
    assert family.pid in tree
    assert len(tree) == 2
    (child,) = set(tree) - {family.pid}
    assert process_tree([child]) == [child]
    assert process_tree([child, family.pid]) == tree


def test_a_process_that_is_gone_is_named() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ProcessLookupError, match=str(process.pid)):
        process_tree([process.pid])


def test_memory_and_time_of_a_process_are_read(family: subprocess.Popen[bytes]) -> None:
    assert 1 * MIB < resident_bytes(family.pid) < 500 * MIB
    assert 0 <= cpu_seconds(family.pid) < 60
    assert idle_share([family.pid], 0) < 0.5


def test_resident_bytes_follow_what_is_allocated() -> None:
    hungry = "import sys; b = bytearray(64 * 2**20); print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hungry], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"up\n"
        assert resident_bytes(process.pid) > 64 * MIB
        process.stdin.close()


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([5], 0),
        ([5, 8], 3),
        ([10] * 8, 0),
        ([10, 10, 99, 10, 10, 10, 10, 10, 10, 10, 99, 10], 0),
        ([10, 20, 30, 40, 50, 60, 70, 80], 60),
        ([80, 70, 60, 50, 40, 30, 20, 10], -60),
    ],
)
def test_growth_is_from_quarter_to_quarter_and_blind_to_odd_samples(samples: list[int], expected: int) -> None:
    assert growth(samples) == expected


def test_the_judgement_adds_the_processes_up() -> None:
    series = {1: [10 * MIB, 10 * MIB, 12 * MIB, 13 * MIB], 2: [5 * MIB, 5 * MIB, 5 * MIB, 4 * MIB]}
    figures = judge(series, 0.015, 0, allowed_mib=2, allowed_idle_percent=1)
    assert figures["growth_mib"] == {"1": 3.0, "2": -1.0}
    assert figures["total_growth_mib"] == 2.0
    assert figures["memory_is_flat"] is True
    assert figures["idle_cpu_percent"] == 1.5
    assert figures["idle_is_idle"] is False
    assert judge(series, 0.0, 0, allowed_mib=1.9, allowed_idle_percent=1)["memory_is_flat"] is False
    assert figures["resident_mib"]["2"] == [5.0, 5.0, 5.0, 4.0]


async def test_requests_are_counted_when_they_fail(start: Any) -> None:
    def answer(path: str, body: dict[str, Any]) -> bytes:
        return response(b"{}", status="500 no" if body["prompt"].startswith("3 ") else "200 OK")

    tiny = await start(TinyServer(answer, together=4))
    async with httpx.AsyncClient(base_url=tiny.url) as client:
        assert await ask_many(client, "tiny", range(10), clients=4) == 1
    assert tiny.most == 4
    async with httpx.AsyncClient(base_url="http://127.0.0.1:1") as client:
        assert await ask_many(client, "tiny", range(3), clients=2) == 3


async def test_a_whole_soak_samples_every_process(start: Any, family: subprocess.Popen[bytes]) -> None:
    tiny = await start(TinyServer(lambda path, body: response(b"{}")))
    out = io.StringIO()
    series, share, failed = await measure(
        tiny.url, [family.pid], Console(file=out), requests=120, warmup=30, clients=4, idle_seconds=0
    )
    assert len(tiny.seen) == 150
    assert len({each["prompt"] for each in tiny.seen}) == PROMPTS
    assert failed == 0
    assert {len(samples) for samples in series.values()} == {41}
    assert len(series) == 2
    assert share < 0.5
    assert out.getvalue().count("requests") == 40
