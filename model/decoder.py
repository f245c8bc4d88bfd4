"""One decoder-only transformer for every family: plain code over weights, switched by `ModelConfig`.

T tokens, L wanted rows, C hidden size, V vocabulary. Knows no families (data decides), no checkpoints, no requests.

Everything a step does is an op of `model.kernels`, `turn`, an addition or a call of the attention backend, in an order
that depends on the configuration alone: `model.program.recording` runs it once over values that note what is done to
them, and the list is the program that a native backend replays.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.backend import AttentionBackend, KVStore
from model.attention.layer import Attention
from model.batch import StepBatch
from model.config import ModelConfig
from model.kernels import matmul, take
from model.mlp import GatedMLP
from model.norm import RMSNorm
from model.positions import Rotary, turn
from model.quant.weight import Weight


@dataclass(frozen=True, slots=True)
class Layer:
    """Attention and MLP, each behind a norm; with sandwich norms also one before each result is added.

    rotary_id says which of the decoder's rotary embeddings turns this layer's queries and keys.
    """

    attention_norm: RMSNorm
    attention: Attention
    attention_post_norm: RMSNorm | None
    mlp_norm: RMSNorm
    mlp: GatedMLP
    mlp_post_norm: RMSNorm | None
    rotary_id: int

    def __call__(
        self, x: Tensor, turn: tuple[Tensor, Tensor], batch: StepBatch, kv: KVStore, backend: AttentionBackend
    ) -> Tensor:
        """(T, C) -> (T, C)."""
        y = self.attention(self.attention_norm(x), turn, batch, kv, backend)
        x = x + (y if self.attention_post_norm is None else self.attention_post_norm(y))
        y = self.mlp(self.mlp_norm(x))
        return x + (y if self.mlp_post_norm is None else self.mlp_post_norm(y))


@dataclass(frozen=True, slots=True)
class Decoder:
    """head is the embedding's own weight where the two are tied. scale multiplies embeddings, rounded to dtype first.

    rotaries: for layers that see everything, and for windowed ones where these have their own.
    """

    config: ModelConfig
    dtype: torch.dtype
    embedding: Weight
    layers: tuple[Layer, ...]
    final_norm: RMSNorm
    head: Weight
    scale: Tensor
    rotaries: tuple[Rotary, ...]

    def forward(self, batch: StepBatch, kv: KVStore, backend: AttentionBackend) -> Tensor:
        """Logits (L, V) of the wanted rows. `hidden`, then `logits`: a step with nothing in between."""
        return self.logits(self.hidden(batch, kv, backend)[batch.rows])

    def hidden(self, batch: StepBatch, kv: KVStore, backend: AttentionBackend) -> Tensor:
        """States (T, C) after the last layer, not normalised yet. Writes the step's keys and values."""
        x = take(batch.tokens, self.embedding)
        if self.config.embedding_scale != 1.0:
            x = x * self.scale
        turns = [turn(batch.positions, rotary, x.dtype) for rotary in self.rotaries]
        for layer in self.layers:
            x = layer(x, turns[layer.rotary_id], batch, kv, backend)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """States (L, C) -> logits (L, V), float32 or the weights' float64."""
        return matmul(self.final_norm(x), self.head).to(torch.promote_types(x.dtype, torch.float32))
