"""Random crowded workloads that are hard on scheduler and cache: repeated prompts, shared pieces, exact multiples of
the block size, forks after a common beginning, several choices, one-token prompts and answers, tiny alphabets."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import msgspec

from model.sampling_params import SamplingParams
from server.engine.request import Request


@dataclass(frozen=True)
class Script:
    """What happens when: requests submitted and ids cancelled before step number n, n counted from 0."""

    arrivals: dict[int, list[Request]] = field(default_factory=dict)
    cancels: dict[int, list[str]] = field(default_factory=dict)

    @property
    def requests(self) -> list[Request]:
        """All of them, in order of arrival."""
        return [request for step in sorted(self.arrivals) for request in self.arrivals[step]]

    @property
    def last(self) -> int:
        """The last step before which something happens."""
        return max((*self.arrivals, *self.cancels), default=0)


def make_prompts(rng: Random, count: int, *, block_size: int, longest: int, alphabet: int = 3) -> list[list[int]]:
    """Prompts of 1..longest tokens that love to coincide."""

    def fresh(length: int) -> list[int]:
        return [rng.randrange(alphabet) for _ in range(length)]

    def blocks() -> int:
        return block_size * rng.randint(1, max(longest // block_size, 1))

    shared = fresh(longest)
    prompts: list[list[int]] = []
    for _ in range(count):
        kind = rng.randrange(7)
        if kind == 0 or not prompts:
            prompt = fresh(rng.randint(1, longest))
        elif kind == 1:
            prompt = list(rng.choice(prompts))
        elif kind == 2:
            prompt = shared[: blocks()]
        elif kind == 3:
            prompt = shared[: blocks()] + fresh(rng.randint(1, block_size))
        elif kind == 4:
            prompt = shared[: blocks() + rng.choice([-1, 1])]
        elif kind == 5:
            prompt = fresh(blocks())
        else:
            other = rng.choice(prompts)
            prompt = other[: rng.randint(1, len(other))] + fresh(rng.randint(1, longest))
        prompts.append(prompt[:longest])
    return prompts


def make_params(rng: Random, *, choice: int = 0) -> SamplingParams:
    """Greedy or sampled, with the settings that look at the history or end an answer early."""
    params = SamplingParams(
        temperature=rng.choice([0.0, 0.0, 0.7, 1.3]),
        top_k=rng.choice([0, 0, 4]),
        top_p=rng.choice([1.0, 0.9]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.3]),
        frequency_penalty=rng.choice([0.0, 0.5]),
        seed=rng.randrange(5),
        choice=choice,
        num_logprobs=rng.choice([None, 0, 2]),
        min_tokens=rng.choice([0, 0, 3]),
        stop_token_ids=rng.choice([(), (), (7,), (2, 9)]),
    )
    return _with_rarer_ones(Random(repr(params)), params)  # rng goes on as it would without them


def _with_rarer_ones(rng: Random, params: SamplingParams) -> SamplingParams:
    if rng.random() < 0.6:
        return params
    return replace(
        params,
        typical_p=rng.choice([1.0, 0.8]),
        xtc_probability=rng.choice([0.0, 0.5]),
        xtc_threshold=0.05,
        dry_multiplier=rng.choice([0.0, 0.8]),
        dry_allowed_length=1,
        dry_sequence_breakers=rng.choice([(), (1,)]),
        dry_penalty_last_n=rng.choice([-1, 6]),
        bad_words=rng.choice([(), ((3,), (0, 1))]),
        allowed_token_ids=rng.choice([(), (), tuple(range(10))]),
    )


def make_requests(
    rng: Random, count: int, *, block_size: int, longest: int = 40, most_new: int = 24, prefix: str = "r"
) -> list[Request]:
    """Requests whose prompt and answer together hold at most longest + most_new tokens."""
    requests: list[Request] = []
    for prompt in make_prompts(rng, count, block_size=block_size, longest=longest):
        choices = rng.choice([1, 1, 1, 3])
        space = rng.choice(["", "", "other"])
        salt = rng.choice(["", "", "", "salt"])
        max_tokens = rng.choice([1, rng.randint(1, most_new), most_new])
        for choice in range(choices):
            requests.append(
                Request(
                    id=f"{prefix}{len(requests)}",
                    prompt=tuple(prompt),
                    max_tokens=max_tokens,
                    params=make_params(rng, choice=choice),
                    namespace=space,
                    cache_salt=salt,
                )
            )
    return [_scored(Random(f"{each.prompt}{each.params}"), each) for each in requests[:count]]


def _scored(rng: Random, request: Request) -> Request:
    """Some want their prompt's log-probabilities."""
    return msgspec.structs.replace(request, prompt_logprobs=rng.choice([0, 2]) if rng.random() < 0.15 else None)


SHAPES = ((40, 24), (8, 56), (8, 56), (60, 4))  # (longest prompt, most new tokens): balanced, growing, reading


def poison(rng: Random, requests: Sequence[Request], tokens: Sequence[int], *, share: float) -> list[Request]:
    """Put one of these tokens somewhere into the prompts of a share of the requests."""
    poisoned = []
    for request in requests:
        if rng.random() < share:
            place = rng.randrange(len(request.prompt))
            prompt = (*request.prompt[:place], rng.choice(tokens), *request.prompt[place + 1 :])
            request = msgspec.structs.replace(request, prompt=prompt)
        poisoned.append(request)
    return poisoned


def scatter(rng: Random, requests: Sequence[Request], *, over: int, cancel_share: float = 0.0) -> Script:
    """Let them arrive in bursts over so many steps, and cancel a share of them some steps later."""
    arrivals: dict[int, list[Request]] = {}
    cancels: dict[int, list[str]] = {}
    step = 0
    for request in requests:
        if rng.random() < 0.5:
            step = min(step + rng.randint(0, max(over // max(len(requests), 1) * 4, 1)), over)
        arrivals.setdefault(step, []).append(request)
        if rng.random() < cancel_share:
            cancels.setdefault(step + rng.randint(0, 20), []).append(request.id)
    return Script(arrivals, cancels)
