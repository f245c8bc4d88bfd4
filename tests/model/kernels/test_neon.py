"""The kernels for 64-bit Arm, as far as a quick test can go; `make test-neon` runs them under qemu-user."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CROSS = "aarch64-linux-gnu-g++"
FLAGS = ["-std=c++17", "-march=armv8.2-a+dotprod", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]


@pytest.mark.parametrize("path", sorted((ROOT / "model/kernels/csrc").glob("*_neon.cpp")), ids=lambda path: path.stem)
def test_the_neon_kernels_compile(path: Path) -> None:
    if not shutil.which(CROSS):
        pytest.skip(f"{CROSS} is not installed: nobody looked whether {path.name} compiles")
    done = subprocess.run([CROSS, *FLAGS, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", ["CROSS", "QEMU"])
def test_without_its_tools_the_neon_target_says_that_it_was_skipped(missing: str) -> None:
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    command = ["make", "-s", "test-neon", f"{missing}=no-such-tool"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "test-neon: skipped" in done.stdout
    assert "no-such-tool" in done.stdout
