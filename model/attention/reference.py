"""Attention over the paged cache in plain torch: the reference everywhere, and what serves without native kernels.

T tokens, H query heads, Hkv KV heads, D head size; B chunks of n tokens in a piece, N cached positions each.
Reads only the blocks that the step's tables name, so its cost does not grow with the pool.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from model.attention.backend import KVStore
from model.batch import Piece, StepBatch


class TorchAttention:
    """Satisfies `model.attention.backend.AttentionBackend` on any device torch knows."""

    padded = True

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
        view = batch.views[kv.group_of(layer_id), window]
        kv.write(layer_id, view.slots, keys, values)
        scales = kv.scales(layer_id) or (None, None)
        pools = (kv.keys(layer_id), scales[0]), (kv.values(layer_id), scales[1])
        seen = [_attend_piece(queries, *pools, piece, scale=scale) for piece in view.pieces]
        return seen[0] if len(seen) == 1 else torch.cat(seen)


Pool = tuple[Tensor, Tensor | None]  # numbers, or codes and their scales


def _attend_piece(queries: Tensor, keys: Pool, values: Pool, piece: Piece, *, scale: float) -> Tensor:
    """The queries of one piece (out of all T) over its blocks of the pool -> (B * n, H, D).

    All query heads of a KV head are rows of one product with it (that is what GQA is for): nothing is repeated.
    """
    num_chunks, num_tokens, _ = piece.mask.shape
    _, num_heads, head_dim = queries.shape
    num_kv_heads = keys[0].shape[2]
    q = queries[piece.first : piece.first + num_chunks * num_tokens]
    q = q.view(num_chunks, num_tokens, num_kv_heads, num_heads // num_kv_heads, head_dim).permute(0, 2, 3, 1, 4)
    k, v = (_gather(*pool, piece.blocks, q.dtype) for pool in (keys, values))
    if num_tokens == 1:
        out = scaled_dot_product_attention(q.flatten(2, 3), k, v, attn_mask=piece.mask[:, None], scale=scale)
        return out.reshape(num_chunks, num_heads, head_dim)
    out = scaled_dot_product_attention(
        q.flatten(0, 1),
        k.flatten(0, 1)[:, None].expand(-1, q.shape[2], -1, -1),
        v.flatten(0, 1)[:, None].expand(-1, q.shape[2], -1, -1),
        attn_mask=piece.mask[:, None],  # four axes, or torch takes its slow path
        scale=scale,
    )
    return out.flatten(0, 1).transpose(0, 1)


def _gather(pool: Tensor, scales: Tensor | None, blocks: Tensor, dtype: torch.dtype) -> Tensor:
    """pool (num_blocks, block_size, Hkv, D), scales without D, blocks (B, S) -> (B, Hkv, N, D) in dtype. Copies."""
    numbers = pool[blocks].flatten(1, 2).to(dtype)
    if scales is not None:
        numbers *= scales[blocks].flatten(1, 2).to(dtype)[..., None]
    return numbers.transpose(1, 2)
