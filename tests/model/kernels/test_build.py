"""The build of the native library never fails an install, and each file gets the flags of its own instruction set."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def build(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", str(tmp_path), "--build-temp", str(tmp_path)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)


def test_a_broken_compiler_costs_one_line(tmp_path: Path) -> None:
    done = build(tmp_path, CC="false", CXX="false")
    assert done.returncode == 0
    notes = [line for line in done.stderr.splitlines() if line.startswith("kvell:")]
    assert len(notes) == 1
    assert "torch will serve" in notes[0]
    assert not list(tmp_path.rglob("*.so"))


def test_no_compiler_costs_one_line(tmp_path: Path) -> None:
    done = build(tmp_path, CC="no-such-compiler", CXX="no-such-compiler", PATH=str(tmp_path))
    assert done.returncode == 0
    assert len([line for line in done.stderr.splitlines() if line.startswith("kvell:")]) == 1


def test_wide_instructions_are_only_in_files_named_after_them(tmp_path: Path) -> None:
    fake = tmp_path / "compiler"  # writes down how it was called and makes an empty object
    fake.write_text('#!/bin/sh\necho "$@" >> "$(dirname "$0")/calls"\nwhile [ $# -gt 0 ]; do\n'
                    '  [ "$1" = -o ] && : > "$2"\n  shift\ndone\n')  # fmt: skip
    fake.chmod(0o755)
    assert build(tmp_path, CC=str(fake), CXX=str(fake)).returncode == 0
    calls = [call for call in (tmp_path / "calls").read_text().splitlines() if " -c " in call]
    assert len(calls) > 5
    for call in calls:
        source = re.search(r"(\w+)\.cpp", call)
        assert source
        wide = re.search(r"-m(avx|fma|f16c)|-march", call)
        assert bool(wide) == source[1].endswith(("_avx2", "_avx512", "_neon")), call
        assert "-march=native" not in call
        assert "-ffp-contract=off" in call
