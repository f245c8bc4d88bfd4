"""The build of the native library never fails an install, and each file gets the flags of its own instruction set."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CSRC = ROOT / "model" / "kernels" / "csrc"
SUFFIXES = ("_avx2", "_avx512", "_neon")


SETUP = "import platform, runpy; platform.machine = lambda: {!r}; runpy.run_path('setup.py', run_name='__main__')"


def build(tmp_path: Path, machine: str = "x86_64", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SETUP.format(machine)]
    command += ["build_ext", "--build-lib", str(tmp_path), "--build-temp", str(tmp_path)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)


def notes(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0
    return [line for line in done.stderr.splitlines() if line.startswith("kvell:")]


class FakeCompiler:
    """Writes down how it was called and makes empty files; fails where `refused` is among its arguments."""

    def __init__(self, tmp_path: Path, refused: str = "nothing is refused") -> None:
        self.path, self.log = tmp_path / "compiler", tmp_path / "calls"
        self.path.write_text(f'''#!/bin/sh
case "$*" in *"{refused}"*) echo no >&2; exit 1;; esac
echo "$@" >> "{self.log}"
while [ $# -gt 0 ]; do [ "$1" = -o ] && : > "$2"; shift; done
''')
        self.path.chmod(0o755)

    def build(self, tmp_path: Path, machine: str = "x86_64") -> list[str]:
        """Notes of a build with this compiler."""
        return notes(build(tmp_path, machine, CC=str(self.path), CXX=str(self.path)))

    def compiled(self) -> dict[str, str]:
        """Arguments by file name without its ending."""
        calls = [call for call in self.log.read_text().splitlines() if " -c " in call]
        return {re.findall(r"(\w+)\.cpp", call)[0]: call for call in calls}

    def sets(self) -> set[str]:
        """The instruction sets that the library is told to have."""
        return set(re.findall(r"-DKVELL_BUILD_(\w+)", self.compiled()["isa"]))


def test_a_broken_compiler_costs_one_line(tmp_path: Path) -> None:
    done = build(tmp_path, CC="false", CXX="false")
    assert len(notes(done)) == 1
    assert "torch will serve" in notes(done)[0]
    assert not list(tmp_path.rglob("*.so"))


def test_no_compiler_costs_one_line(tmp_path: Path) -> None:
    done = build(tmp_path, CC="no-such-compiler", CXX="no-such-compiler", PATH=str(tmp_path))
    assert len(notes(done)) == 1


@pytest.mark.parametrize(
    ("machine", "sets"), [("AMD64", {"AVX2", "AVX512"}), ("aarch64", {"NEON"}), ("riscv64", set())]
)
def test_the_library_holds_its_machine_s_instruction_sets(tmp_path: Path, machine: str, sets: set[str]) -> None:
    compiler = FakeCompiler(tmp_path)
    assert compiler.build(tmp_path, machine) == []
    assert compiler.sets() == sets
    compiled = compiler.compiled()
    assert {"gemm_plain", "ops_plain", "attention_plain", "threads"} <= compiled.keys()
    assert {stem for stem in compiled if stem.endswith(SUFFIXES)} == {
        path.stem for path in CSRC.glob("*.cpp") if path.stem.endswith(tuple("_" + each.lower() for each in sets))
    }
    assert not [stem for stem in compiled if stem.endswith("_main")]
    wide_instructions_are_only_in_files_named_after_them(compiled)


def wide_instructions_are_only_in_files_named_after_them(compiled: dict[str, str]) -> None:
    for stem, call in compiled.items():
        wide = re.search(r"-m(avx|fma|f16c)|-march", call)
        assert bool(wide) == stem.endswith(SUFFIXES), call
        assert "-march=native" not in call
        assert "-ffp-contract=off" in call


@pytest.mark.parametrize(
    ("machine", "refused", "left_out", "kept"),
    [
        ("x86_64", "-mavx512vnni", {"avx512"}, {"AVX2"}),
        ("x86_64", "_avx2.cpp", {"avx2", "avx512"}, set()),  # avx512 borrows from avx2
        ("aarch64", "-march=", {"neon"}, set()),
    ],
)
def test_what_a_compiler_is_too_old_for_is_left_out(
    tmp_path: Path, machine: str, refused: str, left_out: set[str], kept: set[str]
) -> None:
    compiler = FakeCompiler(tmp_path, refused)
    said = compiler.build(tmp_path, machine)
    assert {line.split()[3] for line in said} == left_out
    assert all("this compiler is too old" in line for line in said)
    assert compiler.sets() == kept
    assert list(tmp_path.rglob("*.so"))
