"""Chunks in, scores out: packs a step and runs the decoder over it. Knows no requests, no sampling, no scheduling."""

from collections.abc import Sequence

import torch

from model.attention.backend import AttentionBackend, KVStore
from model.batch import Chunk
from model.decoder import Decoder
from model.packing import Packer
from model.scores import Scores


class ModelRunner:
    """Owns nothing but the way of packing: decoder, cache and attention are handed in. V is the vocabulary."""

    def __init__(self, decoder: Decoder, kv: KVStore, attention: AttentionBackend, device: torch.device) -> None:
        self._decoder = decoder
        self._kv = kv
        self._attention = attention
        layers = range(decoder.config.num_layers)
        kinds = {(kv.group_of(layer_id), decoder.config.window(layer_id)): None for layer_id in layers}
        self._packer = Packer(
            kinds=tuple(kinds),
            block_size=kv.block_size,
            dtype=decoder.dtype,
            device=device,
            padded=attention.padded,
        )

    @torch.inference_mode()
    def run(self, chunks: Sequence[Chunk]) -> Scores:
        """One step. Writes the chunks' keys and values to the cache.

        chunks: at least one; a sequence occurs at most once, with blocks for all its positions.
        Returns the logits (L, V), float32 (float64 where the weights are), on the decoder's device: the last num_logits
        positions of each chunk, chunk after chunk in the order given, whole whatever the wish. Who wants all positions
        of a long prompt should ask for them in pieces: L x V is held at once.

        Raises FloatingPointError when a hidden state is not finite, also one whose logits nobody wants: its keys and
        values must be gone before their blocks can be anyone else's, and those of a window may be so in the next step.
        """
        batch = self._packer.pack(chunks)
        states = self._decoder.hidden(batch, self._kv, self._attention)
        if not torch.isfinite(states).all():
            raise FloatingPointError("hidden states are not finite")
        return Scores.of(self._decoder.logits(states[batch.rows]))
