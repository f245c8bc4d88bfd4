"""Builds the native kernels, if this machine can: a plain shared library with a C ABI beside model/kernels/native.py.

All metadata is in pyproject.toml. On x86 the library holds plain C, AVX2 and AVX-512, on 64-bit Arm plain C and NEON;
which of them runs is chosen when it runs. What a compiler is too old for is left out. A missing or failing compiler
leaves the install whole: one line says so, and torch serves.
"""

import platform
import sys
from contextlib import suppress
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

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
BORROWS = {"avx512": "avx2"}  # takes kernels from that set (isa.cpp), so isn't built without it
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}


def instruction_sets() -> dict[str, list[str]]:
    """Flags by suffix for this machine."""
    return INSTRUCTION_SETS.get(MACHINES.get(platform.machine().lower(), ""), {})


def suffix_of(source: str) -> str:
    return Path(source).stem.rpartition("_")[2]


def sources() -> list[str]:
    """Everything but the self-test's program and other machines' files."""
    not_ours = {suffix for sets in INSTRUCTION_SETS.values() for suffix in sets} - set(instruction_sets())
    files = sorted(str(path) for path in SOURCES.glob("*.cpp"))
    return [source for source in files if suffix_of(source) not in {"main", *not_ours}]


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
        objects = self._instruction_sets(ext)
        macros = [(f"KVELL_BUILD_{suffix.upper()}", "1") for suffix in objects]
        files = [source for source in ext.sources if suffix_of(source) not in instruction_sets()]
        everything = sum(objects.values(), self._compile(ext, files, [], macros=macros))
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(everything, str(path), extra_postargs=["-pthread"], target_lang="c++")
        for suffix in set(instruction_sets()) - set(objects):
            print(f"kvell: built without {suffix} kernels, this compiler is too old for them", file=sys.stderr)

    def _instruction_sets(self, ext: Extension) -> dict[str, list[str]]:
        """Object files by suffix, of the sets that this compiler can build."""
        objects: dict[str, list[str]] = {}
        for suffix, flags in instruction_sets().items():
            if suffix in BORROWS and BORROWS[suffix] not in objects:
                continue
            files = [source for source in ext.sources if suffix_of(source) == suffix]
            with suppress(CompileError):
                objects[suffix] = self._compile(ext, files, flags, macros=[])
        return objects

    def _compile(
        self, ext: Extension, files: list[str], flags: list[str], *, macros: list[tuple[str, str]]
    ) -> list[str]:
        objects: list[str] = self.compiler.compile(
            files, output_dir=self.build_temp, macros=macros, extra_postargs=COMMON + flags, depends=ext.depends
        )
        return objects

    def _note(self, error: Exception) -> None:
        print(f"kvell: built without native kernels, torch will serve ({error})", file=sys.stderr)

    def get_ext_filename(self, fullname: str) -> str:
        """Not a module of this Python: any interpreter may load it, so no version in its name."""
        return str(Path(*fullname.split(".")[:-1]) / LIBRARY.name)


headers = sorted(str(path) for path in SOURCES.glob("*.h"))
kernels = Extension("model.kernels._native", sources=sources(), depends=headers, language="c++", optional=True)
setup(ext_modules=[kernels], cmdclass={"build_ext": BuildKernels})
