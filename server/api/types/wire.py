"""What every body has in common: strictness, and the ranges of values that several of them hold.

null is the same as leaving a field out. Nothing here knows defaults, the model or the engine.
"""

from typing import Annotated

from annotated_types import Ge, Le, Len
from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

MAX_CHOICES_PER_PROMPT = 128
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1000
MAX_STOP_TOKEN_IDS = 128
MAX_LOGPROBS = 20
MAX_MESSAGES = 4096
MAX_BIASES = 1024


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _bias_ids(value: object) -> object:
    """JSON has only string keys: "15043" is token 15043."""
    if not isinstance(value, dict):
        return value
    if any(not (key.isascii() and key.isdecimal()) or str(int(key[:20])) != key for key in value):
        raise PydanticCustomError("logit_bias", 'Input should have token ids as keys, like {"15043": -100}')
    return {int(key): bias for key, bias in value.items()}


Count = Annotated[int, Ge(1), Le(2**31 - 1)]
StopText = Annotated[str, Len(1, MAX_STOP_CHARACTERS)]
Share = Annotated[float, Ge(0), Le(1)]
Penalty = Annotated[float, Ge(-2), Le(2)]
TopLogprobs = Annotated[int, Ge(0), Le(MAX_LOGPROBS)]
Stops = Annotated[
    list[StopText], BeforeValidator(_listed, json_schema_input_type=str | list[StopText]), Len(0, MAX_STOPS)
]
Bias = Annotated[float, Ge(-100), Le(100)]
Biases = Annotated[
    dict[int, Bias], BeforeValidator(_bias_ids, json_schema_input_type=dict[str, Bias]), Len(0, MAX_BIASES)
]


class Wire(BaseModel):
    """No conversions ("5" is not 5), no fields but those named."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
