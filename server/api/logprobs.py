"""Log-probabilities in the two shapes that OpenAI has for them.

Tokens that are part of a character read as U+FFFD; `bytes` (chat) has them exactly, so that they can be joined.
"""

from collections.abc import Sequence

from model.tokenizer.base import Tokenizer
from server.api.choices import ScoredToken
from server.api.pieces import token_text


def chat_logprobs(tokenizer: Tokenizer, scored: Sequence[ScoredToken]) -> dict[str, object]:
    """The `logprobs` of a chat choice: one entry per token, each with its alternatives, best first."""

    def entry(token: int, logprob: float) -> dict[str, object]:
        text, piece = token_text(tokenizer, token)
        return {"token": text, "logprob": logprob, "bytes": list(piece)}

    content = []
    for each in scored:
        best = zip(each.logprob.top_ids, each.logprob.top_logprobs, strict=True)
        top = [entry(token, logprob) for token, logprob in best]
        content.append(entry(each.token, each.logprob.logprob) | {"top_logprobs": top})
    return {"content": content, "refusal": None}


def completion_logprobs(tokenizer: Tokenizer, scored: Sequence[ScoredToken]) -> dict[str, object]:
    """The `logprobs` of a completions choice: parallel lists.

    Each `top_logprobs` entry maps text to log-probability: the best ones and the chosen token, which comes on top of
    their number when it is not among them. Of tokens with equal text the best counts.
    """
    top: list[dict[str, float] | None] = []
    for each in scored:
        if each.entry is None:  # the first token of an echoed prompt
            top.append(None)
            continue
        entry: dict[str, float] = {}
        pairs = list(zip(each.logprob.top_ids, each.logprob.top_logprobs, strict=True))
        for token, logprob in [*pairs, (each.token, each.logprob.logprob)]:
            entry.setdefault(token_text(tokenizer, token)[0], logprob)
        top.append(entry)
    return {
        "tokens": [token_text(tokenizer, each.token)[0] for each in scored],
        "token_logprobs": [each.entry and each.entry.logprob for each in scored],
        "top_logprobs": top,
        "text_offset": [each.offset for each in scored],
    }
