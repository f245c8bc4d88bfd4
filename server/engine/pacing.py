"""How many prompt tokens may join a step, so that running streams don't stutter and no step takes too long.

Learns from the steps it is told about. Knows no clock, no requests and no cache.
"""

SAFETY = 0.9  # aim below the target: a step's cost varies, and its results still have to travel
LEARN = 0.5  # weight of a new step against all before it; a step that took too long is believed at once
SURPRISE = 4.0  # one step counts for at most so many times its expected cost: the machine, not the model, was slow


class Pacer:
    """A running linear model of a step's cost: seconds = base_s + per_token_s * prompt tokens.

    base_s is what the running streams cost by themselves, learned from steps without prompts; per_token_s is learned
    from what steps with prompts cost beyond that. If base_s is out of date (streams came or went while prompts kept
    coming), per_token_s makes up for it: near the size of the latest pieces their sum is what was measured, however
    the two share it, and so the sizes still converge on the target.

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
        self.base_s = 0.0  # 0 as long as none was seen
        self.per_token_s = 0.0  # likewise

    def prompt_tokens(self, num_decoding: int) -> int:
        """How many prompt tokens may join `num_decoding` running streams in the next step. At least 1.

        A step never exceeds `most` tokens, save for the one prompt token that it may always run.
        """
        room = max(self._most - num_decoding, 1)
        spare_s = SAFETY * self._target_s - self.base_s if num_decoding else self._ceiling_s
        if self.per_token_s * room <= spare_s:
            return room  # also as long as no cost is known
        return min(room, max(int(spare_s / self.per_token_s), self._floor)) if self.per_token_s else room

    def observe(self, *, prompt_tokens: int, decode_tokens: int, seconds: float) -> None:
        """Learn from a step that ran so many tokens and took so long."""
        if prompt_tokens:
            self._observe_prompt(prompt_tokens, decode_tokens, seconds)
        elif decode_tokens:
            expected = self.base_s or seconds
            self.base_s = expected + LEARN * (min(seconds, SURPRISE * expected) - expected)

    def _observe_prompt(self, prompt_tokens: int, decode_tokens: int, seconds: float) -> None:
        if decode_tokens and seconds < self.base_s:
            self.base_s = seconds  # a step with prompts can't be cheaper than its streams alone
        base_s = self.base_s if decode_tokens else 0.0
        expected = self.per_token_s or (seconds - base_s) / prompt_tokens
        seconds = min(seconds, SURPRISE * (base_s + expected * prompt_tokens))
        measured = (seconds - base_s) / prompt_tokens
        # a short piece says little: its share of the step's fixed costs looks like a cost per token
        weight = prompt_tokens / (prompt_tokens + self._floor)
        if measured < expected:
            weight *= LEARN
        self.per_token_s = expected + weight * (measured - expected)
