"""The table of angles has the reference's bits, in memory that never moves."""

import pytest
import torch

from model.config import RopeConfig
from model.positions import Rotary
from model.program.ropes import RopeTable

ROPES = {
    "plain": RopeConfig(10000.0),
    "dynamic": RopeConfig(100.0, "dynamic", {"factor": 4.0, "original_max_position_embeddings": 16.0}),
    "yarn": RopeConfig(10000.0, "yarn", {"factor": 4.0, "original_max_position_embeddings": 32.0}),
}


@pytest.mark.parametrize("name", ROPES)
def test_the_table_has_the_references_bits(name: str) -> None:
    rotary = Rotary.of(ROPES[name], head_dim=12, device=torch.device("cpu"))
    table = RopeTable(rotary, 3000)
    address = table.cosines.ctypes.data
    for reached in (1, 5, 1024, 1025, 3000):
        table.reach(reached)
        cosines, sines = rotary(torch.arange(reached), torch.float32)
        assert torch.equal(torch.from_numpy(table.cosines[:reached]), cosines[:, 0])
        assert torch.equal(torch.from_numpy(table.sines[:reached]), sines[:, 0])
    assert table.cosines.ctypes.data == address


def test_only_what_is_reached_is_worked_out() -> None:
    table = RopeTable(Rotary.of(ROPES["plain"], head_dim=12, device=torch.device("cpu")), 5000)
    table.reach(10)
    assert table.cosines[1023].any()
    assert not table.cosines[1024:].any()
