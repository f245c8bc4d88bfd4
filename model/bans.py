"""Which tokens may not come next: ends that would be too early, and those that would complete a bad word.

Knows ids, no logits. What is banned gets -inf (`model.penalties`).
"""

from collections.abc import Sequence

from model.sampling_params import SamplingParams


def banned_ids(
    params: SamplingParams, prompt: Sequence[int], output: Sequence[int], *, masked: bool = False
) -> set[int]:
    """Stop tokens while fewer than min_tokens were generated, and the last token of every bad word all of whose other
    tokens are the text's end (the prompt counts as text). masked: a mask says where the end is possible."""
    early = len(output) < params.min_tokens and not masked
    banned = set(params.stop_token_ids) if early else set()
    if params.bad_words:
        longest = max(map(len, params.bad_words)) - 1
        end = tuple(output[-longest:]) if longest else ()
        if len(end) < longest:
            missing = longest - len(end)
            end = (*prompt[-missing:], *end)
        banned |= {word[-1] for word in params.bad_words if _ends_with(end, word[:-1])}
    return banned


def _ends_with(text: tuple[int, ...], ids: tuple[int, ...]) -> bool:
    return not ids or text[-len(ids) :] == ids
