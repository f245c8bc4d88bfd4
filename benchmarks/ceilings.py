"""The machine's ceilings: memory read rate and multiply rate, so that every other figure is also a share of a limit.

    python benchmarks/ceilings.py [--threads N] [--bytes N]

Memory is read from a buffer of 1 GiB, which no cache holds, and with --bytes also from one of that size: of a model
whose weights are not much larger than the last cache, a part stays there from one step to the next.

Compiles ceilings.cpp into a temporary directory. The last line of output is one JSON object.
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("ceilings.cpp")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Per second, with all threads together: gigabytes read, and billions of multiply-adds held in registers.

    read_own_gb: from a buffer of the size that was asked for; 0 if none was.
    """

    threads: int
    read_gb: float
    read_own_gb: float
    maddubs_g: float
    maddubs_add_g: float
    fma_g: float


def measure(threads: int, own_bytes: int = 0) -> Ceilings:
    """The best of many short runs. Raises CalledProcessError or FileNotFoundError without a C++ compiler."""
    wide = ["-mavx2", "-mfma"] if platform.machine().lower() in ("x86_64", "amd64") else []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "ceilings"
        compiler = os.environ.get("CXX", "c++")
        subprocess.run([compiler, "-O2", "-std=c++17", "-pthread", *wide, SOURCE, "-o", program], check=True)
        done = subprocess.run([program, str(threads), str(own_bytes)], check=True, capture_output=True, text=True)
    return Ceilings(threads, *(float(word) for word in done.stdout.split()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and multiply ceilings of this machine.")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bytes", type=int, default=0, help="also read from a buffer of this size")
    asked = parser.parse_args()
    found = measure(asked.threads, asked.bytes)
    own = f", {found.read_own_gb:.1f} from {asked.bytes / 1e6:.0f} MB" if asked.bytes else ""
    print(f"{found.threads} threads: memory read {found.read_gb:.1f} GB/s{own}")
    print(f"int8 multiply-adds {found.maddubs_g:.0f} G/s, with 16-bit sums {found.maddubs_add_g:.0f} G/s")
    print(f"float32 multiply-adds {found.fma_g:.0f} G/s")
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
