"""Finds the family of a config.json and reads it. No torch here: the API process imports this too."""

from collections.abc import Mapping

from model.config import ModelConfig
from model.errors import CheckpointError, UnknownArchitecture, UnsupportedConfig
from model.families import gemma3, llama, mistral, qwen2, qwen3
from model.families.family import Family, Json
from model.families.tensors import role_shapes

FAMILIES: Mapping[str, Family] = {
    module.FAMILY.name: module.FAMILY for module in (llama, mistral, qwen2, qwen3, gemma3)
}


def family_of(config: Json) -> Family:
    """The family whose model_types include the config's model_type. Raises UnknownArchitecture or CheckpointError."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise CheckpointError("config: model_type is missing, so the model's architecture is unknown")
    if isinstance(config.get("text_config"), Mapping):
        raise UnsupportedConfig(
            "text_config", model_type, "models with images or sound are not served, only text models"
        )
    for family in FAMILIES.values():
        if model_type in family.model_types:
            return family
    raise UnknownArchitecture(model_type, tuple(FAMILIES))


def family_of_gguf(architecture: str) -> Family:
    """The family of a GGUF's general.architecture. Raises UnknownArchitecture."""
    for family in FAMILIES.values():
        if architecture in family.gguf_architectures:
            return family
    raise UnknownArchitecture(architecture, tuple(FAMILIES))


def to_model_config(config: Json) -> ModelConfig:
    """config.json, parsed -> ModelConfig. Raises UnknownArchitecture or UnsupportedConfig."""
    return family_of(config).read(config)


def tensor_name(config: ModelConfig, role: str, layer_id: int | None = None) -> str:
    """The Hugging Face name of a role. layer_id None for what occurs once (embedding, final_norm, head)."""
    return FAMILIES[config.family].tensors[role].hf.format(layer=layer_id)


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that a checkpoint of this configuration must hold: Hugging Face name -> shape."""
    tensors = FAMILIES[config.family].tensors
    shapes: dict[str, tuple[int, ...]] = {}
    for role, shape in role_shapes(config).items():
        name = tensors[role].hf
        layers = range(config.num_layers) if "{layer}" in name else (None,)
        shapes |= {name.format(layer=layer): shape for layer in layers}
    return shapes
