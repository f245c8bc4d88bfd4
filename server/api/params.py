"""How tokens are chosen, from a body's fields, with the checkpoint's defaults where it says nothing.

Shared by all endpoints that generate. Knows the vocabulary; knows no prompts and no lengths.
"""

import secrets
from collections.abc import Iterable
from typing import TypeVar

from model.sampling_params import SamplingParams
from server.api.serving import ServedModel
from server.api.spellings import last_ids, spellings
from server.api.types import GenerationBody
from server.engine.errors import InvalidValue

DRY_BREAKERS = ("\n", ":", '"', "*")  # its author's

# what neither the checkpoint nor the vocabulary has a say in
AS_GIVEN = (
    *("typical_p", "presence_penalty", "frequency_penalty", "min_tokens", "xtc_probability", "xtc_threshold"),
    *("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"),
)

SEED_BITS = 53  # of a drawn seed, so that JavaScript reads it exactly

Number = TypeVar("Number", int, float)


def sampling_params(body: GenerationBody, num_logprobs: int | None, model: ServedModel) -> SamplingParams:
    """Sampling for choice 0. The seed is drawn here when the user named none. Raises InvalidValue."""
    check_ids(body.logit_bias or (), "logit_bias", model)
    check_ids(body.stop_token_ids or (), "stop_token_ids", model)
    check_ids(body.allowed_token_ids or (), "allowed_token_ids", model)
    own = model.defaults
    ends = frozenset() if body.ignore_eos else model.eos_ids
    top_k = max(0, _or(body.top_k, own.top_k))  # OpenAI-like servers use -1 for "off" too
    given = {name: getattr(body, name) for name in AS_GIVEN if getattr(body, name) is not None}
    params = SamplingParams(
        temperature=_or(body.temperature, own.temperature),
        top_k=min(top_k, model.tokenizer.vocab_size),
        top_p=_or(body.top_p, own.top_p),
        min_p=_or(body.min_p, own.min_p),
        repetition_penalty=_or(body.repetition_penalty, own.repetition_penalty),
        logit_bias=dict(body.logit_bias or {}),
        seed=secrets.randbits(SEED_BITS) if body.seed is None else body.seed,
        num_logprobs=num_logprobs,
        stop_token_ids=tuple(sorted(ends.union(body.stop_token_ids or ()))),
        dry_sequence_breakers=_breakers(body, model),
        bad_words=_bad_words(body, model),
        allowed_token_ids=tuple(sorted(set(body.allowed_token_ids or ()))),
        **given,
    )
    _check_something_is_possible(params, model)
    return params


def check_ids(ids: Iterable[int], param: str, model: ServedModel) -> None:
    """Raises InvalidValue for an id that the model does not have."""
    size = model.tokenizer.vocab_size
    wrong = next((i for i in ids if not 0 <= i < size), None)
    if wrong is not None:
        raise InvalidValue(
            f"{param}: token id {str(wrong)[:40]} is not in the vocabulary, 0 to {size - 1}", param=param
        )


def _breakers(body: GenerationBody, model: ServedModel) -> tuple[int, ...]:
    if not body.dry_multiplier:
        return ()
    words = DRY_BREAKERS if body.dry_sequence_breakers is None else body.dry_sequence_breakers
    return tuple(sorted(last_ids(model.tokenizer, words)))


def _bad_words(body: GenerationBody, model: ServedModel) -> tuple[tuple[int, ...], ...]:
    found = [spellings(model.tokenizer, word) for word in body.bad_words or ()]
    return tuple(sorted(set().union(*found)))


def _check_something_is_possible(params: SamplingParams, model: ServedModel) -> None:
    """Some token must be possible at every moment, whatever was said before. Raises InvalidValue."""
    if not params.bad_words and not params.allowed_token_ids:
        return
    banned = {word[-1] for word in params.bad_words}
    if params.min_tokens:
        banned.update(params.stop_token_ids)
    allowed = set(params.allowed_token_ids or range(model.tokenizer.vocab_size))
    if not allowed - banned:
        param = "allowed_token_ids" if params.allowed_token_ids else "bad_words"
        message = f"{param}: after bad_words and min_tokens no token is left that could always be chosen"
        raise InvalidValue(message, param=param)


def _or(asked: Number | None, otherwise: Number) -> Number:
    return otherwise if asked is None else asked
