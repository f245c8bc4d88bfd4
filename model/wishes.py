"""What must be known of a row of logits to choose a token as asked: the one place that decides who may do without them.

Conservative by construction: a parameter that is not named here, or a field of a row, sends it to its whole logits as
soon as it has another value than its default. No torch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from model.batch import MOST_BEST, Wish
from model.sampling_params import SamplingParams

# What `model.few` obeys, or what has no say in which token is chosen (stop tokens without min_tokens, logprobs).
HARMLESS = frozenset({"temperature", "top_k", "top_p", "min_p", "seed", "choice", "num_logprobs", "stop_token_ids"})
# What changes logits before anything is filtered (`model.penalties`): the row is needed whole, but `model.few` will do.
EDITS = frozenset({"repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "min_tokens"})


def wish_of(params: SamplingParams) -> Wish:
    """What of its logits a row with these parameters needs, as far as its parameters say."""
    count = params.num_logprobs or 0
    assert count <= MOST_BEST, f"{count} alternatives, at most {MOST_BEST}"
    wanted = 1 if is_greedy(params) else params.top_k
    enough = 0 < wanted <= MOST_BEST and _are_defaults(params, _NOT_HARMLESS)
    return Wish(
        whole=not enough,
        num_best=max(wanted if enough else 0, count, 1),
        log_sum=params.num_logprobs is not None,
    )


def is_greedy(params: SamplingParams) -> bool:
    """Whether only the best token can be chosen, so that no weights are needed."""
    return params.temperature == 0 or params.top_k == 1 or (params.top_p <= 0 and params.typical_p >= 1)


def chooses_among_few(params: SamplingParams) -> bool:
    """Whether `model.few` is the way to draw for a row with these parameters, once its logits are edited."""
    return 0 < params.top_k <= MOST_BEST and _are_defaults(params, _NOT_EDITS)


def _are_defaults(params: SamplingParams, expected: Sequence[tuple[str, object]]) -> bool:
    return all(getattr(params, name) == default for name, default in expected)


def _defaults(of: Iterable[Field[Any]]) -> list[tuple[str, object]]:
    return [(f.name, f.default if f.default_factory is MISSING else f.default_factory()) for f in of]


_NOT_HARMLESS = [each for each in _defaults(fields(SamplingParams)) if each[0] not in HARMLESS]
_NOT_EDITS = [each for each in _NOT_HARMLESS if each[0] not in EDITS]
