"""A checkpoint -> a Decoder ready to run: reads the weights as dense tensors and puts them together."""

from typing import Literal

import torch

from model.building import build_decoder
from model.checkpoint.load import Progress, Read, load_weights
from model.checkpoint.source import Checkpoint
from model.decoder import Decoder
from model.families.registry import FAMILIES, to_model_config, weight_shapes


def load_model(
    checkpoint: Checkpoint,
    *,
    device: torch.device,
    dtype: torch.dtype,
    backend: Literal["auto", "torch"] = "auto",
    on_progress: Progress | None = None,
    read: Read | None = None,
) -> Decoder:
    """Weights as dtype (float32, bfloat16 or float64) on device, whatever they were stored as.

    backend says which kernels the weights are laid out for; only torch's so far, so auto is torch.
    on_progress is called with (bytes read, bytes in all). Peak memory: the model and one fused matrix.
    read gives a tensor by name (`model.quant.rounding` rounds them on the way); None: as it is stored.
    Raises CheckpointError where a tensor is missing, left over or of the wrong shape.
    """
    assert backend in ("auto", "torch"), backend
    config = to_model_config(checkpoint.config)
    wanted = weight_shapes(config)
    ignore = FAMILIES[config.family].ignore
    tensors = load_weights(
        checkpoint, wanted, ignore=ignore, dtype=dtype, device=device, on_progress=on_progress, read=read
    )
    return build_decoder(config, tensors)
