"""Builds the native kernels, if this machine can: a plain shared library with a C ABI beside model/kernels/native.py.

All metadata is in pyproject.toml. A missing or failing compiler leaves the install whole: one line says so, and torch
serves.
"""

import platform
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("model/kernels/csrc")
LIBRARY = Path("model/kernels/_native.so")

# Sums must be the same bits whoever compiles: no contraction into multiply-adds but the ones that are written.
COMMON = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-fast-math", "-fvisibility=hidden", "-g0", "-pthread"]
# A file's last word says which instruction set it is for; others must run anywhere. Never -march=native.
AVX2 = ["-mavx2", "-mfma", "-mf16c", "-fno-tree-pre"]  # tree-pre hoists loads out of micro-kernels until they spill
INSTRUCTION_SETS = {
    "x86_64": {
        "avx2": AVX2,
        "avx512": [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni", "-mprefer-vector-width=512"],
    },
    "arm64": {"neon": ["-march=armv8.2-a+dotprod"]},
}
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}


def instruction_sets() -> dict[str, list[str]]:
    """Flags by suffix for this machine; those without a source file yet are left out."""
    found = INSTRUCTION_SETS.get(MACHINES.get(platform.machine().lower(), ""), {})
    return {suffix: flags for suffix, flags in found.items() if any(SOURCES.glob(f"*_{suffix}.cpp"))}


def sources() -> list[str]:
    """Everything but the self-test's driver and other machines' files."""
    ours = instruction_sets()
    suffixes = {suffix for sets in INSTRUCTION_SETS.values() for suffix in sets}
    files = sorted(SOURCES.glob("*.cpp"))
    return [str(f) for f in files if (s := f.stem.rpartition("_")[2]) in ours or (s not in suffixes and s != "main")]


class BuildKernels(build_ext):
    """Compiles each file with the flags of its instruction set, and never fails."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self._note(error)

    def build_extension(self, ext: Extension) -> None:
        try:
            self._build(ext)
        except Exception as error:  # whatever a compiler can do wrong
            self._note(error)

    def _build(self, ext: Extension) -> None:
        sets = instruction_sets()
        macros = [(f"KVELL_BUILD_{suffix.upper()}", "1") for suffix in sets]
        objects: list[str] = []
        for source in ext.sources:
            flags = COMMON + sets.get(Path(source).stem.rpartition("_")[2], [])
            objects += self.compiler.compile(
                [source], output_dir=self.build_temp, macros=macros, extra_postargs=flags, depends=ext.depends
            )
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(objects, str(path), extra_postargs=["-pthread"], target_lang="c++")

    def _note(self, error: Exception) -> None:
        print(f"kvell: built without native kernels, torch will serve ({error})", file=sys.stderr)

    def get_ext_filename(self, fullname: str) -> str:
        """Not a module of this Python: any interpreter may load it, so no version in its name."""
        return str(Path(*fullname.split(".")[:-1]) / LIBRARY.name)


headers = sorted(str(path) for path in SOURCES.glob("*.h"))
kernels = Extension("model.kernels._native", sources=sources(), depends=headers, language="c++", optional=True)
setup(ext_modules=[kernels], cmdclass={"build_ext": BuildKernels})
