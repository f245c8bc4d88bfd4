"""The fields that say how tokens are chosen."""

from typing import Annotated

from annotated_types import Ge, Le, Len
from pydantic import Field

from server.api.types.wire import Biases, Penalty, Share, Wire

MAX_BAD_WORDS = 128
MAX_WORD_CHARACTERS = 200
MAX_ALLOWED_TOKEN_IDS = 16384
MAX_BREAKERS = 16

Word = Annotated[str, Len(1, MAX_WORD_CHARACTERS)]


class SamplingFields(Wire):
    """Sampling, in the names that are in common use."""

    temperature: Annotated[float, Ge(0), Le(2)] | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Ge(-1)] | None = None
    min_p: Share | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    dry_multiplier: Annotated[float, Ge(0), Le(100)] | None = None
    dry_base: Annotated[float, Ge(1), Le(10)] | None = None
    dry_allowed_length: Annotated[int, Ge(1), Le(2**31 - 1)] | None = None
    dry_penalty_last_n: Annotated[int, Ge(-1), Le(2**31 - 1)] | None = None
    dry_sequence_breakers: Annotated[list[Word], Len(0, MAX_BREAKERS)] | None = None
    xtc_probability: Share | None = None
    xtc_threshold: Share | None = None
    logit_bias: Biases | None = None
    bad_words: Annotated[list[Word], Len(0, MAX_BAD_WORDS)] | None = None
    allowed_token_ids: Annotated[list[int], Len(1, MAX_ALLOWED_TOKEN_IDS)] | None = None
    seed: Annotated[int, Ge(-(2**63)), Le(2**63 - 1)] | None = None
