"""Loading for the native kernels leaves the packed weights in memory, and no second copy of them in any form."""

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from model.checkpoint.source import open_checkpoint
from model.decoder import Decoder
from model.families.registry import to_model_config, weight_shapes
from model.native_load import load_native_model
from model.quant.packed import PackedWeight
from model.quant.rounding import Bits, plan_rounding
from tests.helpers.checkpoints import CONFIG, write_hf
from tests.helpers.native_teams import native_team

SIZES = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 1000, "head_dim": 64}
BYTES = {None: 4.0, "int8": 34 / 32, "int4": 20 / 32}  # of a value


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1.7 million values of float32, head and embedding apart."""
    rng = np.random.default_rng(0)
    config = CONFIG | SIZES
    tensors = {
        name: rng.standard_normal(shape, np.float32) for name, shape in weight_shapes(to_model_config(config)).items()
    }
    return write_hf(tmp_path_factory.mktemp("model") / "m", tensors, config)


def weights_of(decoder: Decoder) -> list[PackedWeight]:
    layers = [(each.attention.qkv, each.attention.out, each.mlp.gate_up, each.mlp.down) for each in decoder.layers]
    found = [decoder.embedding, decoder.head, *(linear.weight for layer in layers for linear in layer)]
    assert all(isinstance(weight, PackedWeight) for weight in found)
    return found  # type: ignore[return-value]


def live_tensors() -> dict[int, int]:
    """Bytes by address."""
    tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
    return {each.data_ptr(): each.untyped_storage().nbytes() for each in tensors}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc here")
@pytest.mark.parametrize("bits", [None, "int8", "int4"])
def test_no_second_copy_of_the_weights_stays(model: Path, bits: Bits | None) -> None:
    checkpoint, team = open_checkpoint(model), native_team()
    read = plan_rounding(checkpoint, bits, threads=1).stored if bits else None
    tensors_before = live_tensors()
    tracemalloc.start()  # numpy's arrays and Python's objects; the arena's memory is a mapping and not among them
    try:
        decoder = load_native_model(checkpoint, team, read=read)
        gc.collect()
        traced, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    packed = sum(weight.num_bytes for weight in weights_of(decoder))
    values = sum(weight.shape[0] * weight.shape[1] for weight in weights_of(decoder))
    wider = 0
    if bits == "int4":  # embedding and head, then down and v of both layers, in 8 bits
        wider = 2 * SIZES["vocab_size"] * 256 + 2 * 256 * (SIZES["intermediate_size"] + 2 * SIZES["head_dim"])
    expected = (values - wider) * BYTES[bits] + wider * BYTES["int8"]
    assert packed == pytest.approx(expected, rel=0.01)
    assert traced < 0.1 * packed, "arrays"
    more = live_tensors().items() - tensors_before.items()
    assert sum(size for _, size in more) < 0.1 * packed, "tensors"
    assert str(model) not in Path("/proc/self/maps").read_text(), "pages of the file"
