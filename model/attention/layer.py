"""A layer's attention: project, normalise and rotate queries and keys, attend over the cache, project back.

T tokens, H query heads, Hkv KV heads, D head size. MHA, GQA and MQA differ in Hkv only.
"""

from dataclasses import dataclass

from torch import Tensor

from model.attention.backend import AttentionBackend, KVStore
from model.batch import StepBatch
from model.kernels import rotate
from model.linear import Linear
from model.norm import RMSNorm


@dataclass(frozen=True, slots=True)
class Attention:
    """qkv (H D + 2 Hkv D, C): the rows of q, of k, of v. out (C, H D). window None: all positions."""

    layer_id: int
    qkv: Linear
    out: Linear
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None

    def __call__(
        self, x: Tensor, turn: tuple[Tensor, Tensor], batch: StepBatch, kv: KVStore, backend: AttentionBackend
    ) -> Tensor:
        """x (T, C), turn: cosines and sines of the step's positions -> (T, C). Writes keys and values to kv."""
        counts = [self.num_heads, self.num_kv_heads, self.num_kv_heads]
        q, k, v = self.qkv(x).reshape(-1, sum(counts), self.head_dim).split_with_sizes(counts, dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, *turn), rotate(k, *turn)
        seen = backend.attend(self.layer_id, q, k, v, batch, kv, scale=self.scale, window=self.window)
        return self.out(seen.flatten(1))
