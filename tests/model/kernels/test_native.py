"""The native library: how it is found, chosen, refused, and what its smallest functions do."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch

from model.kernels import native
from model.kernels.native import NativeUnavailable, Team, choose_isa, load_library, proven_team
from tests.helpers.packed import make_team, other_isas, quantized

BLOCK = np.dtype([("codes", np.int8, 32), ("scale", "<f4"), ("sum", "<f4"), ("low", "<f4"), ("high", "<f4")])


def blocks_of(x: torch.Tensor, team: Team) -> np.ndarray:
    out = np.zeros((len(x), -(-x.shape[1] // 32)), BLOCK)
    team.library.kvell_quantize(team.handle, x.data_ptr(), x.shape[1], len(x), x.shape[1], out.ctypes.data)
    return out


def test_a_block_is_as_large_as_python_thinks() -> None:
    assert BLOCK.itemsize == native.BLOCK_BYTES


def test_a_library_that_was_not_built_is_a_line_not_a_crash(tmp_path: Path) -> None:
    with pytest.raises(NativeUnavailable, match="was not built"):
        load_library(tmp_path / "_native.so")


def test_a_damaged_library_is_a_line_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "_native.so").write_bytes(b"not a library")
    with pytest.raises(NativeUnavailable, match="can't be used"):
        load_library(tmp_path / "_native.so")


def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    make_team()
    monkeypatch.setattr(native, "ABI", native.ABI + 1)
    with pytest.raises(NativeUnavailable, match="install kvell again"):
        load_library()


class OldMachine(ctypes.Structure):
    """Stands for a library: says which instruction sets are there."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def kvell_has_isa(self, isa: int) -> bool:
        return native.ISA_NAMES[isa] in self.names


@pytest.mark.parametrize(
    ("there", "asked", "chosen"),
    [
        (("plain",), None, "plain"),
        (("plain", "avx2"), None, "avx2"),
        (("plain", "avx2", "avx512"), None, "avx2"),  # nobody has run it
        (("plain", "avx2", "avx512"), "avx512", "avx512"),
        (("plain", "neon"), None, "neon"),
        (("plain", "avx2"), "plain", "plain"),
    ],
)
def test_the_best_proven_instruction_set_is_chosen(there: tuple[str, ...], asked: str | None, chosen: str) -> None:
    assert choose_isa(OldMachine(*there), asked) == chosen


def test_an_instruction_set_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(NativeUnavailable, match=r"'avx512'.*only plain, avx2"):
        choose_isa(OldMachine("plain", "avx2"), "avx512")


def test_the_environment_chooses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    make_team()
    monkeypatch.setenv("KVELL_ISA", "plain")
    assert Team(1).isa == "plain"


@pytest.mark.parametrize("isa", ["plain", *other_isas()])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_kernels_agree_with_plain_c(isa: str, threads: int) -> None:
    assert make_team(threads, isa).differing == ""


class FaultyMachine(OldMachine):
    """A library whose self-test finds a fault in some instruction sets. A team's handle is the number of its own."""

    def __init__(self, *names: str, faults: dict[str, str]) -> None:
        super().__init__(*names)
        self.faults = faults
        self.destroyed: list[str] = []

    def kvell_team_create(self, threads: int, isa: int) -> int:
        return isa + 1

    def kvell_team_destroy(self, handle: int) -> None:
        self.destroyed.append(native.ISA_NAMES[handle - 1])

    def kvell_selftest(self, handle: int) -> bytes:
        return self.faults.get(native.ISA_NAMES[handle - 1], "").encode()


NORM = {"avx512": "norm"}
BOTH = {"avx512": "product of 4-bit codes", "avx2": "norm"}


@pytest.mark.parametrize(
    ("there", "asked", "faults", "used", "found"),
    [
        (("plain", "avx2", "avx512"), None, NORM, "avx2", ""),  # not asked for, so nobody looks
        (("plain", "avx2", "avx512"), "avx512", {}, "avx512", ""),
        (("plain", "avx2", "avx512"), "avx512", NORM, "avx2", "avx512 (norm)"),
        (("plain", "avx2", "avx512"), "avx512", BOTH, "plain", "avx512 (product of 4-bit codes), avx2 (norm)"),
        (("plain", "avx2"), None, {"avx2": "attention"}, "plain", "avx2 (attention)"),
        (("plain", "neon"), None, {"neon": "silu gate"}, "plain", "neon (silu gate)"),
        (("plain",), None, {"plain": "norm"}, "plain", ""),  # the reference has nothing to be compared with
    ],
)
def test_kernels_that_differ_are_replaced_by_the_next_best(
    monkeypatch: pytest.MonkeyPatch,
    there: tuple[str, ...],
    asked: str | None,
    faults: dict[str, str],
    used: str,
    found: str,
) -> None:
    machine = FaultyMachine(*there, faults=faults)
    monkeypatch.setattr(native, "load_library", lambda: machine)
    team, note = proven_team(2, isa=asked)
    assert team.isa == used
    assert note == (found and f"kernels that differ from plain C on this machine: {found}; using {used}")
    assert machine.destroyed == ([] if not found else [each.split()[0] for each in found.split(", ")])


@pytest.mark.parametrize("isa", ["plain", *other_isas()])
@pytest.mark.parametrize("columns", [1, 31, 32, 33, 96, 577])
def test_activations_become_the_nearest_codes(columns: int, isa: str) -> None:
    x = torch.randn(4, columns, generator=torch.Generator().manual_seed(columns)) * 50
    x[1, : columns // 2] = 0
    x[2] = x[2].round()  # halves, which round to even
    blocks = blocks_of(x, make_team(2, isa))
    codes = blocks["codes"].astype(np.float64)
    values = (codes * blocks["scale"][..., None]).reshape(4, -1)[:, :columns]
    np.testing.assert_array_equal(values, quantized(x)[0])
    np.testing.assert_array_equal(blocks["sum"], blocks["scale"] * codes.sum(-1).astype(np.float32))
    np.testing.assert_array_equal(blocks["low"], blocks["scale"] * codes[..., :16].sum(-1).astype(np.float32))
    np.testing.assert_array_equal(blocks["high"], blocks["scale"] * codes[..., 16:].sum(-1).astype(np.float32))


def test_a_team_can_be_closed_twice_and_ends_its_threads() -> None:
    team = make_team(3)
    before = len(list(Path("/proc/self/task").iterdir())) if Path("/proc/self/task").exists() else 2
    team.close()
    team.close()
    after = len(list(Path("/proc/self/task").iterdir())) if Path("/proc/self/task").exists() else 0
    assert before - after == 2
