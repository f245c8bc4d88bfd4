"""Chunks are cheap to import, and they do not change."""

import dataclasses
import subprocess
import sys

import pytest

from model.batch import Chunk


def test_making_chunks_does_not_cost_torch() -> None:
    program = "import sys; import model.batch; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_chunk_is_frozen() -> None:
    chunk = Chunk(tokens=[1], start=0, tables=([1],), num_logits=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        chunk.start = 1  # type: ignore[misc]
