"""Tensors by their Hugging Face names -> Decoder. Knows roles and shapes; knows no files."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from model.attention.layer import Attention
from model.config import ModelConfig
from model.decoder import Decoder, Layer
from model.families.registry import tensor_name
from model.families.tensors import role_shapes
from model.linear import Linear
from model.mlp import GatedMLP
from model.norm import RMSNorm
from model.positions import Rotary
from model.quant.dense import DenseWeight
from model.quant.weight import Weight

MakeMatrix = Callable[[Sequence[str]], Weight]


def build_decoder(config: ModelConfig, tensors: dict[str, Tensor], *, matrix: MakeMatrix | None = None) -> Decoder:
    """tensors as `model.families.registry.weight_shapes` names them, all of one dtype and on one device.

    Takes the tensors out of the dict as it goes: matrices that are multiplied together are copied into one, and so the
    copies never add up to a second model. With `matrix`, tensors holds only vectors (norms, biases) and matrix(names)
    makes one weight of the rows of the matrices of these names.
    """
    return _Builder(config, tensors, matrix).decoder()


class _Builder:
    def __init__(self, config: ModelConfig, tensors: dict[str, Tensor], matrix: MakeMatrix | None) -> None:
        self._config = config
        self._tensors = tensors
        self._roles = role_shapes(config)
        self._matrix = matrix or self._dense

    def decoder(self) -> Decoder:
        config = self._config
        final_norm = tensor_name(config, "final_norm")
        dtype, device = self._tensors[final_norm].dtype, self._tensors[final_norm].device
        embedding = self._weight(("embedding",))
        ropes = [config.rope] if config.local_rope is None else [config.rope, config.local_rope]
        return Decoder(
            config=config,
            dtype=dtype,
            embedding=embedding,
            layers=tuple(self._layer(layer_id) for layer_id in range(config.num_layers)),
            final_norm=self._norm("final_norm"),
            head=embedding if config.tie_embeddings else self._weight(("head",)),
            scale=torch.tensor(config.embedding_scale, dtype=dtype, device=device),
            rotaries=tuple(Rotary.of(rope, head_dim=config.head_dim, device=device) for rope in ropes),
        )

    def _layer(self, layer_id: int) -> Layer:
        config = self._config
        return Layer(
            attention_norm=self._norm("attention_norm", layer_id),
            attention=self._attention(layer_id),
            attention_post_norm=self._optional_norm("attention_post_norm", layer_id),
            mlp_norm=self._norm("mlp_norm", layer_id),
            mlp=GatedMLP(
                gate_up=self._linear(("gate", "up"), layer_id),
                down=self._linear(("down",), layer_id),
                activation=config.activation,
            ),
            mlp_post_norm=self._optional_norm("mlp_post_norm", layer_id),
            rotary_id=int(config.local_rope is not None and config.window(layer_id) is not None),
        )

    def _attention(self, layer_id: int) -> Attention:
        config = self._config
        return Attention(
            layer_id=layer_id,
            qkv=self._linear(("q", "k", "v"), layer_id),
            out=self._linear(("o",), layer_id),
            q_norm=self._optional_norm("q_norm", layer_id),
            k_norm=self._optional_norm("k_norm", layer_id),
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            scale=config.head_dim**-0.5 if config.query_scale is None else config.query_scale,
            window=config.window(layer_id),
        )

    def _linear(self, roles: tuple[str, ...], layer_id: int) -> Linear:
        """Several roles as one matrix; their biases, where the configuration has them, likewise."""
        weight = self._weight(roles, layer_id)
        biases = [self._take(f"{role}_bias", layer_id) for role in roles if f"{role}_bias" in self._roles]
        return Linear(weight, torch.cat(biases) if biases else None)

    def _weight(self, roles: tuple[str, ...], layer_id: int | None = None) -> Weight:
        """The rows of several roles as one matrix."""
        weight = self._matrix([tensor_name(self._config, role, layer_id) for role in roles])
        shapes = [self._roles[role] for role in roles]
        expected = sum(shape[0] for shape in shapes), shapes[0][1]
        assert tuple(weight.shape) == expected, (roles, layer_id, weight.shape, expected)
        return weight

    def _dense(self, names: Sequence[str]) -> Weight:
        return DenseWeight.stacked([self._tensors.pop(name) for name in names])

    def _optional_norm(self, role: str, layer_id: int) -> RMSNorm | None:
        return self._norm(role, layer_id) if role in self._roles else None

    def _norm(self, role: str, layer_id: int | None = None) -> RMSNorm:
        config = self._config
        return RMSNorm.of(self._take(role, layer_id), eps=config.norm_eps, offset=config.norm_offset)

    def _take(self, role: str, layer_id: int | None = None) -> Tensor:
        tensor = self._tensors.pop(tensor_name(self._config, role, layer_id))
        assert tuple(tensor.shape) == self._roles[role], (role, layer_id, tensor.shape, self._roles[role])
        return tensor
