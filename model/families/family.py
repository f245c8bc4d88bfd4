"""What a family is: data that maps a config.json to `ModelConfig` and the decoder's roles to stored tensor names.

Knows names and shapes; knows no tensors and no files. No torch here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model.config import ModelConfig

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TensorName:
    """One tensor under its Hugging Face name and its GGUF name; {layer} stands for the layer's number."""

    hf: str
    gguf: str


@dataclass(frozen=True, slots=True)
class Family:
    """One model family.

    model_types         values of config.json's model_type
    gguf_architectures  values of a GGUF's general.architecture
    read                config.json -> ModelConfig; raises UnsupportedConfig
    tensors             role in the decoder -> name; a name that does not depend on {layer} occurs once
    ignore              regular expressions (full match) of stored Hugging Face names that carry no weights
    gguf_ignore         the same for GGUF names
    gguf_permuted       roles whose rows a GGUF stores in interleaved rope order (per head: r0 r[D/2] r1 r[D/2+1] ...);
                        the decoder wants them as Hugging Face has them (first half, then second half)
    gguf_norm_offset    what GGUF conversion added to every norm weight (gemma stores 1 + w); subtract it
    """

    name: str
    model_types: tuple[str, ...]
    gguf_architectures: tuple[str, ...]
    read: Callable[[Json], ModelConfig]
    tensors: Mapping[str, TensorName]
    ignore: tuple[str, ...] = (r"(.*\.)?rotary_emb\.inv_freq",)
    gguf_ignore: tuple[str, ...] = ()
    gguf_permuted: tuple[str, ...] = ()
    gguf_norm_offset: float = 0.0
