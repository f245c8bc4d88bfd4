"""A checkpoint -> a Decoder of packed weights for the native kernels, straight from the file's bytes."""

from collections.abc import Sequence

import torch

from model.building import build_decoder
from model.checkpoint.load import Progress, Read, to_tensor
from model.checkpoint.match import check_names
from model.checkpoint.source import Checkpoint
from model.decoder import Decoder
from model.families.registry import FAMILIES, to_model_config, weight_shapes
from model.kernels.native import Team
from model.quant.arena import Arena
from model.quant.packed import PackedWeight


def load_native_model(
    checkpoint: Checkpoint, team: Team, *, on_progress: Progress | None = None, read: Read | None = None
) -> Decoder:
    """Matrices as they are stored, only interleaved; norms and biases as float32.

    on_progress is called with (bytes read, bytes in all). Peak memory: the packed model and the pages of the file that
    are just being read. read gives a matrix by name (`model.quant.rounding` rounds them on the way); None: as stored.
    Raises CheckpointError where a tensor is missing, left over or of the wrong shape.
    """
    config = to_model_config(checkpoint.config)
    wanted = weight_shapes(config)
    check_names(checkpoint, wanted, ignore=FAMILIES[config.family].ignore)
    vectors = {
        name: to_tensor(checkpoint.stored(name), dtype=torch.float32)
        for name, shape in wanted.items()
        if len(shape) == 1
    }
    total = sum(checkpoint.stored_bytes(name) for name in wanted)
    done = sum(checkpoint.stored_bytes(name) for name in vectors)
    arena = Arena()

    def matrix(names: Sequence[str]) -> PackedWeight:
        nonlocal done
        weight = PackedWeight.stacked([(read or checkpoint.stored)(name) for name in names], team, arena)
        done += sum(checkpoint.stored_bytes(name) for name in names)
        if on_progress:
            on_progress(done, total)
        return weight

    return build_decoder(config, vectors, matrix=matrix)
