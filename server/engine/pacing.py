"""How many prompt tokens may join a step, so that running streams don't stutter and no step takes too long.

Learns from the steps it is told about. Knows no clock, no requests and no cache.
"""

from math import sqrt

SAFETY = 0.95  # aim below the target: a step's cost varies, and its results still have to travel
LEARN = 0.5  # weight of a new step against all before it; a step that took too long is believed at once
SURPRISE = 4.0  # one step counts for at most so many times its expected cost: the machine, not the model, was slow
FORGET = 0.99  # of what earlier steps say about contexts, at each step
APART = 0.01  # below it, steps were too alike to tell what a context costs


class Budget:
    """The prompt tokens of one step. A token counts as one, and `pair` more for each position it looks back at.

    most: tokens, whatever they cost. floor: tokens that the first piece may have, whatever they cost.
    """

    def __init__(self, units: float, *, most: int | None = None, floor: int = 0, pair: float = 0.0) -> None:
        self._units = units
        self._left = int(units) if most is None else most
        self._floor = floor
        self._pair = pair

    def room(self, context: int) -> int:
        """How many tokens still fit that follow so many others: n + pair * (n * context + n * n / 2) <= units."""
        slope = 1 + self._pair * context
        fits = (sqrt(slope**2 + 2 * self._pair * self._units) - slope) / self._pair if self._pair else self._units
        return min(self._left, max(int(fits + 1e-6), self._floor))

    def spend(self, tokens: int, context: int) -> None:
        """These run."""
        self._units = max(0.0, self._units - tokens - self._pair * pairs(tokens, context))
        self._left -= tokens
        self._floor = 0


def pairs(tokens: int, context: int) -> float:
    """How often a token looks at a position before it, where so many tokens follow so many others."""
    return tokens * context + tokens**2 / 2


class ContextCost:
    """What a pair costs in tokens, by least squares over the latest steps: seconds = a * tokens + b * pairs."""

    def __init__(self) -> None:
        self.pair = 0.0  # as long as nothing tells
        self._tt = self._tp = self._pp = self._ts = self._ps = 0.0  # sums of products

    def learn(self, tokens: int, pairs: float, seconds: float) -> None:
        """A step's prompt tokens, and what they cost."""
        self._tt, self._tp = FORGET * self._tt + tokens**2, FORGET * self._tp + tokens * pairs
        self._pp = FORGET * self._pp + pairs**2
        self._ts, self._ps = FORGET * self._ts + tokens * seconds, FORGET * self._ps + pairs * seconds
        determinant = self._tt * self._pp - self._tp**2
        if determinant > APART * self._tt * self._pp:
            per_token = self._ts * self._pp - self._ps * self._tp
            per_pair = self._ps * self._tt - self._ts * self._tp
            self.pair = max(0.0, per_pair) / per_token if per_token > 0 else self.pair


class Pacer:
    """A running linear model of a step's cost: seconds = base_s + per_token_s * (prompt tokens + pair * pairs).

    base_s is what the running streams cost by themselves, learned from steps without prompts; per_token_s is learned
    from what steps with prompts cost beyond that. If base_s is out of date (streams came or went while prompts kept
    coming), per_token_s makes up for it: near the size of the latest pieces their sum is what was measured, however
    the two share it, and so the sizes still converge on the target. That tokens cost more where more stand before them
    is in `pair`: a short piece behind a long cached beginning would else be taken for a cheap one.

    target_s   the longest gap between two tokens of a running stream
    ceiling_s  the longest step when nothing is streaming: a cancel waits for it, and a hang must look different
    floor      prompt tokens that every step may run, whatever they cost, so that prompts always progress
    most       tokens per step, running streams included
    """

    def __init__(self, *, target_s: float, floor: int, most: int, ceiling_s: float = 1.0) -> None:
        self._target_s = target_s
        self._ceiling_s = ceiling_s
        self._floor = floor
        self._most = most
        self._context = ContextCost()
        self.base_s = 0.0  # 0 as long as none was seen
        self.per_token_s = 0.0  # likewise

    def budget(self, num_decoding: int) -> Budget:
        """What prompts may take of the next step, beside so many running streams.

        A step never exceeds `most` tokens, save for the one prompt token that it may always run.
        """
        most = max(self._most - num_decoding, 1)
        if not self.per_token_s:
            return Budget(most)
        spare_s = SAFETY * self._target_s - self.base_s if num_decoding else self._ceiling_s
        units = max(0.0, spare_s / self.per_token_s)
        return Budget(units, most=most, floor=self._floor, pair=self._context.pair)

    def observe(self, *, prompt_tokens: int, decode_tokens: int, seconds: float, pairs: float = 0.0) -> None:
        """Learn from a step that ran so many tokens and took so long. pairs: of its pieces of prompts, added up."""
        if prompt_tokens:
            self._observe_prompt(prompt_tokens, decode_tokens, seconds, pairs)
        elif decode_tokens:
            expected = self.base_s or seconds
            self.base_s = expected + LEARN * (min(seconds, SURPRISE * expected) - expected)

    def _observe_prompt(self, prompt_tokens: int, decode_tokens: int, seconds: float, pairs: float) -> None:
        if decode_tokens and seconds < self.base_s:
            self.base_s = seconds  # a step with prompts can't be cheaper than its streams alone
        base_s = self.base_s if decode_tokens else 0.0
        units = prompt_tokens + self._context.pair * pairs
        expected = self.per_token_s or (seconds - base_s) / units
        seconds = min(seconds, SURPRISE * (base_s + expected * units))
        measured = (seconds - base_s) / units
        # a short piece says little: its share of the step's fixed costs looks like a cost per token
        weight = prompt_tokens / (prompt_tokens + self._floor)
        if measured < expected:
            weight *= LEARN
        self._context.learn(prompt_tokens, pairs, seconds - base_s)
        cost_s = (expected + weight * (measured - expected)) * units  # of this step; stays what it is when pair changes
        self.per_token_s = cost_s / (prompt_tokens + self._context.pair * pairs)
