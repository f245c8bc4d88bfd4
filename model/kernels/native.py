"""The native library: finds it, declares its C functions to ctypes, and makes teams of threads. No torch.

Knows the names in csrc/kvell.h; knows no weights and no models. Who adds a C function adds a line to `SIGNATURES`.
"""

import ctypes
import os
import weakref
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_void_p
from pathlib import Path

LIBRARY = Path(__file__).with_name("_native.so")
ABI = 3
ISA_NAMES = ("plain", "avx2", "avx512", "neon")
# Run only when asked for: nobody has run these kernels on such a machine yet.
UNPROVEN = ("avx512",)


class NativeUnavailable(Exception):
    """Why there are no native kernels here, in one line."""


class Matrix(ctypes.Structure):
    """`kvell_matrix` of csrc/kvell.h. Whoever fills it in keeps `data` alive."""

    _fields_ = (
        ("rows", c_int32),
        ("columns", c_int32),
        ("kind", c_int32),
        ("group", c_int32),
        ("scale_bytes", c_int32),
        ("offset", c_int32),
        ("zero", c_float),
        ("first_row", c_int32),
        ("data", c_void_p),
    )


U4, U5, U6, S8, BF16, F16, F32 = range(7)  # kvell_kind
NO_OFFSET, STORED, IMPLIED = range(3)  # kvell_offset
BLOCK_COLUMNS = 32
BLOCK_BYTES = 48  # sizeof(kvell_block)

_M = POINTER(Matrix)
SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "kvell_abi": (c_int32, ()),
    "kvell_has_isa": (c_int32, (c_int32,)),
    "kvell_team_create": (c_void_p, (c_int32, c_int32)),
    "kvell_team_destroy": (None, (c_void_p,)),
    "kvell_team_threads": (c_int32, (c_void_p,)),
    "kvell_team_isa": (c_int32, (c_void_p,)),
    "kvell_selftest": (c_char_p, (c_void_p,)),
    "kvell_matrix_bytes": (c_int64, (_M,)),
    "kvell_pack_codes": (None, (c_void_p, _M, c_int32, c_int32, c_void_p, c_void_p, c_void_p)),
    "kvell_pack_values": (None, (c_void_p, _M, c_int32, c_int32, c_void_p)),
    "kvell_gguf_format": (c_int32, (c_int32, _M)),
    "kvell_pack_gguf": (None, (c_void_p, _M, c_int32, c_int32, c_int32, c_void_p)),
    "kvell_take": (None, (c_void_p, _M, c_void_p, c_int64, c_void_p, c_int64)),
    "kvell_quantize": (None, (c_void_p, c_void_p, c_int64, c_int64, c_int32, c_void_p)),
    "kvell_matmul": (None, (c_void_p, _M, c_int32, c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_int64)),
    "kvell_plan_attention": (
        None,
        (c_void_p, c_int64, c_int32, c_int32, c_int32, c_int32, c_void_p, c_int64, c_void_p),
    ),
    "kvell_attention_row_floats": (c_int64, (c_int32,)),
    "kvell_attention_scratch_floats": (c_int64, (c_int32, c_int32, c_int32)),
    "kvell_attend": (None, (c_void_p, c_void_p)),
    "kvell_normalize": (None, (c_void_p, c_void_p)),
    "kvell_rotate_and_store": (None, (c_void_p, c_void_p)),
    "kvell_store": (None, (c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64)),
    "kvell_activate": (None, (c_void_p, c_void_p)),
    "kvell_copy_rows": (
        None,
        (c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_int32, c_float, c_void_p, c_int64),
    ),
    "kvell_add_bias": (None, (c_void_p, c_void_p, c_int64, c_int64, c_int32, c_void_p)),
    "kvell_finite_rows": (c_int64, (c_void_p, c_void_p, c_int64, c_int64, c_int32, c_void_p)),
    "kvell_head_scratch_bytes": (c_int64, (c_void_p, c_void_p)),
    "kvell_head_rows": (None, (c_void_p, c_void_p)),
    "kvell_program_create": (c_void_p, (c_void_p, c_void_p, c_char_p, c_int64)),
    "kvell_program_destroy": (None, (c_void_p,)),
    "kvell_program_run": (c_int32, (c_void_p, c_void_p)),
    "kvell_program_error": (c_char_p, (c_void_p,)),
}


def load_library(path: Path = LIBRARY) -> ctypes.CDLL:
    """The library with its signatures declared. Raises NativeUnavailable when it wasn't built or is too old."""
    if not path.exists():
        raise NativeUnavailable(f"{path.name} was not built (no C++ compiler when kvell was installed)")
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise NativeUnavailable(f"{path.name} can't be used: {error}") from error
    if library.kvell_abi() != ABI:
        raise NativeUnavailable(f"{path.name} is version {library.kvell_abi()}, {ABI} is needed: install kvell again")
    return library


def choose_isa(library: ctypes.CDLL, asked: str | None = None) -> str:
    """The instruction set that was asked for, or the best that this processor and this library have.

    Raises NativeUnavailable when the one that was asked for is not to be had.
    """
    there = _isas_of(library)
    if asked is None:
        return [name for name in there if name not in UNPROVEN][-1]
    if asked not in there:
        raise NativeUnavailable(f"instruction set {asked!r} is not to be had here, only {', '.join(there)}")
    return asked


def _isas_of(library: ctypes.CDLL) -> list[str]:
    return [name for isa, name in enumerate(ISA_NAMES) if library.kvell_has_isa(isa)]


class Team:
    """Threads (the caller is one of them) and the instruction set that they use; every C function runs on one.

    isa None: KVELL_ISA from the environment, else the best. handle is what the C functions take.
    """

    def __init__(self, threads: int, *, isa: str | None = None, library: ctypes.CDLL | None = None) -> None:
        """Raises NativeUnavailable: no library, no such instruction set, no more threads."""
        self.library = load_library() if library is None else library
        self.threads = threads
        self.isa = choose_isa(self.library, isa or os.environ.get("KVELL_ISA"))
        handle = self.library.kvell_team_create(threads, ISA_NAMES.index(self.isa))
        if not handle:
            raise NativeUnavailable(f"can't start {threads} threads")
        self.handle = handle
        self._finalizer = weakref.finalize(self, self.library.kvell_team_destroy, handle)

    @property
    def differing(self) -> str:
        """The first of its kernels that gives other bits than plain C on this machine; empty when none does."""
        name: bytes = self.library.kvell_selftest(self.handle)
        return name.decode()

    def close(self) -> None:
        """Ends the threads. Nothing may run on the team afterwards."""
        self._finalizer()


def proven_team(threads: int, *, isa: str | None = None) -> tuple[Team, str]:
    """A team whose kernels have just been compared with plain C, and a line to log when that made it fall back.

    Falls back to the next best instruction set here, plain C at last. The line is empty when all is well. Raises
    NativeUnavailable as `Team` does.
    """
    team, failed = Team(threads, isa=isa), []
    while team.isa != "plain" and (kernel := team.differing):
        failed.append(f"{team.isa} ({kernel})")
        team.close()
        team = Team(threads, isa=_next_best(team))
    if not failed:
        return team, ""
    return team, f"kernels that differ from plain C on this machine: {', '.join(failed)}; using {team.isa}"


def _next_best(team: Team) -> str:
    there = _isas_of(team.library)
    return [name for name in there[: there.index(team.isa)] if name not in UNPROVEN][-1]
