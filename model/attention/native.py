"""Attention over the paged cache with the native kernels: the same bits for a query in any company, in any chunk.

T tokens, H query heads, Hkv KV heads, D head size. float32 queries; the cache may be float32, bfloat16 or int8.
Reads block tables, so its batches need no masks (`Packer.padded`).
"""

import torch
from torch import Tensor

from model.attention.backend import KVStore
from model.batch import CacheView, StepBatch
from model.kernels.attention import AttentionPlan, HeadShape
from model.kernels.native import Team
from model.kernels.ops import CacheLayer, store


class NativeAttention:
    """Satisfies `model.attention.backend.AttentionBackend`. One step at a time: plans are kept from layer to layer."""

    padded = False

    def __init__(self, team: Team) -> None:
        self._team = team
        self._plans: dict[tuple[int, int | None], tuple[CacheView, AttentionPlan]] = {}

    def attend(
        self,
        layer_id: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        batch: StepBatch,
        kv: KVStore,
        *,
        scale: float,
        window: int | None,
    ) -> Tensor:
        """queries (T, H, D), keys and values (T, Hkv, D) -> (T, H, D). The step's own keys are written first."""
        kind = kv.group_of(layer_id), window
        view = batch.views[kind]
        cache = CacheLayer(kv.keys(layer_id), kv.values(layer_id), kv.scales(layer_id))
        store(self._team, _whole_rows(keys), _whole_rows(values), view.slots, cache)
        out = torch.empty(queries.shape)
        plan = self._plan(kind, view, HeadShape(queries.shape[1], keys.shape[1], keys.shape[2]))
        plan.attend(_whole_rows(queries), cache, out, scale=scale)
        return out

    def _plan(self, kind: tuple[int, int | None], view: CacheView, shape: HeadShape) -> AttentionPlan:
        planned = self._plans.get(kind)
        if planned is not None and planned[0] is view:
            return planned[1]
        plan = AttentionPlan.of(self._team, view.tables.chunks, view.tables.blocks, shape=shape, window=kind[1])
        self._plans[kind] = view, plan
        return plan


def _whole_rows(x: Tensor) -> Tensor:
    """x (T, H, D) such that each token's heads follow one another; copies only if they don't yet."""
    return x if x[0].is_contiguous() else x.contiguous()
