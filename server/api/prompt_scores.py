"""A prompt's tokens with their log-probabilities, for echo and for prompt_logprobs.

The first token has none: nothing came before it. Tokens that were not scored in time have none either.
"""

from collections.abc import Sequence

import msgspec

from model.tokenizer.base import Tokenizer
from server.api.choices import ScoredToken
from server.api.pieces import token_text
from server.engine.detokenizer import Detokenizer
from server.engine.request import TokenLogprob


def echoed_tokens(
    tokenizer: Tokenizer, ids: Sequence[int], text: str, entries: Sequence[TokenLogprob], *, best: int
) -> list[ScoredToken]:
    """The prompt's tokens as if they had been generated, each where it stands in the echoed text.

    A special token stands there by its name, if the user wrote it, and else takes no room.
    """
    scored, place = [], 0
    for token, said, entry in zip(ids, _texts(tokenizer, ids), padded(ids, entries), strict=True):
        scored.append(ScoredToken(token, entry and with_best(entry, best), place))
        said = said or tokenizer.name(token)
        if text.startswith(said, place):
            place += len(said)
    return scored


def listed_logprobs(
    tokenizer: Tokenizer, ids: Sequence[int], entries: Sequence[TokenLogprob], *, best: int
) -> list[dict[str, object] | None]:
    """One object per token, by ids as strings: the best ones by rank, and the prompt's own, unranked if it is not one.

    null where there is none. The shape is vLLM's.
    """
    return [
        None if entry is None else _by_id(tokenizer, token, with_best(entry, best))
        for token, entry in zip(ids, padded(ids, entries), strict=True)
    ]


def with_best(entry: TokenLogprob, best: int) -> TokenLogprob:
    """With so many alternatives only."""
    return msgspec.structs.replace(entry, top_ids=entry.top_ids[:best], top_logprobs=entry.top_logprobs[:best])


def padded(ids: Sequence[int], entries: Sequence[TokenLogprob]) -> list[TokenLogprob | None]:
    """One per id."""
    return [None, *entries, *[None] * (len(ids) - 1 - len(entries))][: len(ids)]


def _by_id(tokenizer: Tokenizer, token: int, entry: TokenLogprob) -> dict[str, object]:
    found: dict[str, object] = {}
    for rank, (other, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), start=1):
        found[str(other)] = _one(tokenizer, other, logprob, rank)
    found.setdefault(str(token), _one(tokenizer, token, entry.logprob, None))
    return found


def _one(tokenizer: Tokenizer, token: int, logprob: float, rank: int | None) -> dict[str, object]:
    return {"logprob": logprob, "rank": rank, "decoded_token": token_text(tokenizer, token)[0]}


def _texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """What each token adds to the prompt's text; a character of several tokens is its first one's."""
    detokenizer = Detokenizer(tokenizer)
    detokenizer.push(ids)
    detokenizer.flush()
    return [detokenizer.token_text(place) for place in range(len(ids))]
