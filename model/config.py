"""The one description of a decoder-only transformer that every family maps to. No torch here."""

from dataclasses import dataclass, field
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]
Scaling = Literal["none", "linear", "llama3", "yarn", "dynamic"]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding of one kind of layer.

    base is theta. scaling names how long contexts are reached and params holds its numbers under the names of
    Hugging Face's `rope_scaling` (factor, low_freq_factor, high_freq_factor, original_max_position_embeddings,
    beta_fast, beta_slow, attention_factor, mscale, mscale_all_dim ...). divisors, one per pair of a head's
    numbers, divide the frequencies beforehand: a GGUF states llama3 scaling so (its rope_freqs).
    """

    base: float
    scaling: Scaling = "none"
    params: dict[str, float] = field(default_factory=dict)
    divisors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shapes and switches of a decoder. Every switch is something that a family in `model.families` needs."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    norm_eps: float
    rope: RopeConfig
    tie_embeddings: bool
    activation: Activation = "silu"
    norm_offset: float = 0.0  # gemma multiplies by (1 + weight)
    sandwich_norm: bool = False  # norms after attention and MLP too, before the residual add
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False  # RMSNorm over each head of q and k, before rope
    embedding_scale: float = 1.0
    query_scale: float | None = None  # None: head_dim ** -0.5
    local_rope: RopeConfig | None = None  # rope of windowed layers, where it differs
    windows: tuple[int | None, ...] = ()  # per layer: how many positions it sees, itself included; () is all None

    def window(self, layer_id: int) -> int | None:
        """How many latest positions layer `layer_id` sees, itself included; None when it sees all."""
        return self.windows[layer_id] if self.windows else None
