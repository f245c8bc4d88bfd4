"""Teams of native threads for tests, made once each. Where no kernels were built, the test that asks is skipped."""

from functools import cache

import pytest

from model.kernels.native import ISA_NAMES, UNPROVEN, NativeUnavailable, Team, load_library

ISAS = tuple(isa for isa in ISA_NAMES if isa not in UNPROVEN)


@cache
def native_team(threads: int = 2, isa: str | None = None) -> Team:
    try:
        return Team(threads, isa=isa)
    except NativeUnavailable as reason:
        pytest.skip(str(reason))


def other_isas() -> list[str]:
    """The instruction sets of this machine, besides plain C. Empty where nothing was built."""
    try:
        library = load_library()
    except NativeUnavailable:
        return []
    return [isa for isa in ISAS if isa != "plain" and library.kvell_has_isa(ISA_NAMES.index(isa))]
