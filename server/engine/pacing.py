"""How many prompt tokens may join a step, so that running streams don't stutter and no step takes too long.

Learns from the steps it is told about. Knows no clock, no requests and no cache.
"""

SAFETY = 0.9  # aim below the target: a step's cost varies, and its results still have to travel
KEEP = 0.8  # weight of the past against one new step: about five steps of memory, so that growing contexts are followed
SURPRISE = 4.0  # one step counts for at most so many times its expected cost: the machine, not the model, was slow


class Pacer:
    """A running linear model of a step's cost: seconds = base + per_token * prompt tokens.

    base is what running streams cost by themselves, learned from steps without prompts. per_token is the ratio of
    decayed sums over steps with prompts, so a large piece weighs more than a small one. A wrong base does no lasting
    harm: near the size of the latest pieces base + per_token * tokens equals what was measured, however the two share
    it, and so the sizes converge on the target from either side.

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
        self._base_s = 0.0
        self._prompt_s = 0.0  # decayed sums over steps with prompts
        self._prompt_tokens = 0.0

    @property
    def base_s(self) -> float:
        """Estimated seconds of a step without prompt tokens; 0 as long as none was seen."""
        return self._base_s

    @property
    def per_token_s(self) -> float | None:
        """Estimated seconds that one more prompt token adds; None as long as no prompt was seen."""
        return self._prompt_s / self._prompt_tokens if self._prompt_tokens else None

    def prompt_tokens(self, num_decoding: int) -> int:
        """How many prompt tokens may join `num_decoding` running streams in the next step. At least 1.

        A step never exceeds `most` tokens, save for the one prompt token that it may always run.
        """
        room = max(self._most - num_decoding, 1)
        per_token_s = self.per_token_s
        if not per_token_s:
            return room
        spare_s = SAFETY * self._target_s - self.base_s if num_decoding else self._ceiling_s
        return min(room, max(int(spare_s / per_token_s), self._floor))

    def observe(self, *, prompt_tokens: int, decode_tokens: int, seconds: float) -> None:
        """Learn from a step that ran so many tokens and took so long."""
        if prompt_tokens:
            self._observe_prompt(prompt_tokens, decode_tokens, seconds)
        elif decode_tokens and not self._base_s:
            self._base_s = seconds
        elif decode_tokens:
            self._base_s = KEEP * self.base_s + (1 - KEEP) * min(seconds, SURPRISE * self.base_s)

    def _observe_prompt(self, prompt_tokens: int, decode_tokens: int, seconds: float) -> None:
        base_s = self.base_s if decode_tokens else 0.0
        per_token_s = self.per_token_s
        if per_token_s:
            seconds = min(seconds, SURPRISE * (base_s + per_token_s * prompt_tokens))
        if decode_tokens and seconds < base_s:
            base_s = self._base_s = seconds  # a step with prompts can't be cheaper than the streams alone
        self._prompt_s = KEEP * self._prompt_s + (seconds - base_s)
        self._prompt_tokens = KEEP * self._prompt_tokens + prompt_tokens
