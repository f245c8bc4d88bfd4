"""The ceilings: a big buffer is always read, one of the model's size where asked for."""

import json
import shutil
import subprocess
import sys

import pytest

from benchmarks import ceilings


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
def test_the_program_is_clean() -> None:
    strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run(["c++", *strict, ceilings.SOURCE], check=True)


def test_both_buffers_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ceilings, "measure", lambda threads, size: ceilings.Ceilings(threads, 17.5, 21.0, 1, 2, 3))
    monkeypatch.setattr(sys, "argv", ["ceilings", "--threads", "1", "--bytes", "3000000"])
    ceilings.main()
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1])["read_gb"] == 17.5
    assert "17.5 GB/s, 21.0 from 3 MB" in lines[0]


def test_the_size_reaches_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    class Done:
        stdout = "17.5 21.0 300 200 90\n"

    def run(command: list[object], **given: object) -> Done:
        asked.append([str(word) for word in command])
        return Done()

    monkeypatch.setattr(ceilings.subprocess, "run", run)  # type: ignore[attr-defined]
    found = ceilings.measure(2, 97_000_000)
    assert asked[-1][1:] == ["2", "97000000"]
    assert (found.read_gb, found.read_own_gb, found.fma_g) == (17.5, 21.0, 90)
