"""A slow sampler in plain Python, one token at a time, to compare the real one with; and a chi-square test."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from model.sampling_params import SamplingParams

LARGEST = float(np.finfo(np.float32).max)


def float32(value: float) -> float:
    return float(np.float32(value))


def edited(
    logits: Sequence[float], params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> list[float]:
    """The logits after penalties, bias and bans."""
    scores = list(logits)
    for token in set(prompt) | set(output):
        score, repetition = scores[token], params.repetition_penalty
        score = score / repetition if score > 0 else score * repetition
        times = list(output).count(token)
        scores[token] = float32(score - params.frequency_penalty * times - params.presence_penalty * (times > 0))
    for token, loss in dry_losses([*prompt, *output], params).items():
        scores[token] = float32(max(scores[token] - loss, -LARGEST))
    for token, bias in params.logit_bias.items():
        scores[token] = float32(scores[token] + bias)
    if len(output) < params.min_tokens:
        for token in params.stop_token_ids:
            scores[token] = -math.inf
    text = [*prompt, *output]
    for *begun, last in params.bad_words:
        if text[len(text) - len(begun) :] == begun:
            scores[last] = -math.inf
    if params.allowed_token_ids:
        scores = [each if token in params.allowed_token_ids else -math.inf for token, each in enumerate(scores)]
    return scores


def dry_losses(text: Sequence[int], params: SamplingParams) -> dict[int, float]:
    """What each token loses, place by place and token by token, as DRY's author words it."""
    if params.dry_penalty_last_n >= 0:
        text = text[max(0, len(text) - params.dry_penalty_last_n) :]
    breakers, losses = params.dry_sequence_breakers, dict[int, float]()
    for place in range(1, len(text)):
        if text[place] in breakers:
            continue
        length = 0
        while length < place and text[place - 1 - length] == text[-1 - length] not in breakers:
            length += 1
        if length >= params.dry_allowed_length:
            loss = params.dry_multiplier * params.dry_base ** (length - params.dry_allowed_length)
            losses[text[place]] = max(loss, losses.get(text[place], 0.0))
    return losses if params.dry_multiplier else {}


def distribution(scores: Sequence[float], params: SamplingParams, *, exclude: bool = False) -> dict[int, float]:
    """The probability of each token that the filters keep, by id, ascending. exclude: XTC acts."""
    ranked = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    if params.temperature == 0:
        return {ranked[0]: 1.0}
    best = scores[ranked[0]]
    weights = {token: math.exp((scores[token] - best) / params.temperature) for token in ranked}
    if params.top_k > 0:
        ranked = ranked[: params.top_k]
    if params.typical_p < 1:
        ranked = typical(ranked, weights, params.typical_p)
    whole, better, kept = sum(weights[token] for token in ranked), 0.0, []
    for token in ranked:
        if kept and params.top_p < 1 and better >= params.top_p * whole:
            break
        kept.append(token)
        better += weights[token]
    kept = [token for token in kept if weights[token] >= params.min_p * weights[ranked[0]]]
    if exclude:
        whole = sum(weights[token] for token in kept)
        top = [token for token in kept if weights[token] >= params.xtc_threshold * whole]
        kept = [token for token in kept if token not in top[:-1]]
    whole = sum(weights[token] for token in kept)
    return {token: weights[token] / whole for token in sorted(kept) if weights[token] > 0}


def typical(ranked: Sequence[int], weights: Mapping[int, float], share: float) -> list[int]:
    """Those of `ranked` that locally typical sampling keeps, in the same order."""
    whole = sum(weights[token] for token in ranked)
    surprise = {token: -math.log(weights[token] / whole) for token in ranked if weights[token] > 0}
    entropy = sum(weights[token] / whole * each for token, each in surprise.items())
    kept, mass = [], 0.0
    for token in sorted(surprise, key=lambda token: (abs(surprise[token] - entropy), token)):
        if kept and mass >= share * whole:
            break
        kept.append(token)
        mass += weights[token]
    return [token for token in ranked if token in kept]


def draw(probabilities: Mapping[int, float], uniform: float) -> int:
    reached = 0.0
    for token, probability in sorted(probabilities.items()):
        reached += probability
        if reached > uniform:
            return token
    return max(probabilities)


def log_softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    normaliser = math.log(math.fsum(math.exp(each - top) for each in logits))
    return [each - top - normaliser for each in logits]


def too_far(counts: Sequence[float], expected: Sequence[float]) -> bool:
    """Whether Pearson's chi-square says that the counts do not follow `expected`, with one false alarm in 10,000.

    Critical value by the cube-root approximation (Wilson and Hilferty, 1931). Cells that expect under 5 are pooled.
    """
    big = [(c, e) for c, e in zip(counts, expected, strict=True) if e >= 5]
    pooled = (sum(counts) - sum(c for c, _ in big), sum(expected) - sum(e for _, e in big))
    cells = [*big, pooled] if pooled[1] >= 5 else big
    if not math.isclose(sum(counts), sum(expected), rel_tol=1e-6):
        return True
    if pooled[1] == 0 and pooled[0]:
        return True  # something was drawn that is impossible
    degrees = len(cells) - 1
    statistic = sum((c - e) ** 2 / e for c, e in cells)
    spread = 2 / (9 * degrees)
    return statistic > degrees * (1 - spread + 3.72 * math.sqrt(spread)) ** 3


def varied_params(random: np.random.Generator, vocab: int) -> SamplingParams:
    """Parameters of any mixture, many of them at the edge of what they may be."""

    def pick(*values: float) -> float:
        return float(values[int(random.integers(len(values)))])

    ids = [int(each) for each in random.integers(0, vocab, 12)]
    params = SamplingParams(
        temperature=pick(0, 1e-6, 0.3, 0.8, 1, 1, 1.5, 5),
        top_k=int(pick(0, 0, 0, -1, 1, 2, 40, 200, vocab, 10**6)),
        top_p=pick(1, 1, 1, 0, 1e-9, 0.5, 0.9, 0.999),
        min_p=pick(0, 0, 0, 0.02, 0.3, 1),
        seed=int(random.integers(0, 2**63)),
        choice=int(random.integers(0, 4)),
        num_logprobs=[None, None, 0, 1, 5, 20][int(random.integers(6))],
    )
    if random.random() < 0.5:
        params = replace(
            params,
            repetition_penalty=pick(1, 0.5, 1.1, 2),
            presence_penalty=pick(0, -2, 0.5, 2),
            frequency_penalty=pick(0, -2, 0.5, 2),
            logit_bias={ids[0]: -100.0, ids[1]: 3.0, ids[2]: 100.0} if random.random() < 0.3 else {},
            min_tokens=int(pick(0, 3, 1000)),
            stop_token_ids=tuple(ids[3:6]),
        )
    if random.random() < 0.5:
        params = replace(
            params,
            typical_p=pick(1, 0.1, 0.5, 0.9),
            xtc_probability=pick(0, 0.5, 1),
            xtc_threshold=pick(0.001, 0.01, 0.1, 0.5),
            dry_multiplier=pick(0, 0.8, 3),
            dry_base=pick(1, 1.75),
            dry_allowed_length=int(pick(1, 2, 3)),
            dry_penalty_last_n=int(pick(-1, -1, 0, 1, 5)),
            dry_sequence_breakers=tuple(ids[6:7]),
            bad_words=((ids[8],), (ids[9], ids[10])),
            allowed_token_ids=tuple(range(0, vocab, 2)) if random.random() < 0.2 else (),
        )
    return params
