"""What an answer shows besides its text. Knows what was asked for, not how it is worded."""

from dataclasses import dataclass

MAX_PROMPT_SCORES = 2**20  # entries of one answer for its prompts' tokens


@dataclass(frozen=True, slots=True)
class Shown:
    """logprobs, prompt_logprobs: with so many alternatives; None: not at all. echoed: the prompt's come with logprobs.

    receipt: one is made.
    """

    logprobs: int | None = None
    echoed: bool = False
    prompt_logprobs: int | None = None
    token_ids: bool = False
    receipt: bool = False

    @property
    def scored(self) -> int | None:
        """With how many alternatives the prompts are to be scored; None: not at all."""
        asked = [count for count in (self.logprobs if self.echoed else None, self.prompt_logprobs) if count is not None]
        return max(asked, default=None)

    @property
    def tokens(self) -> bool:
        """Whether anything is said token by token."""
        return self.logprobs is not None or self.token_ids

    def num_prompt_scores(self, prompt_tokens: int) -> int:
        """Entries that one choice holds for a prompt of so many tokens."""
        echoed = 1 + self.logprobs if self.echoed and self.logprobs is not None else 0
        listed = 0 if self.prompt_logprobs is None else 1 + self.prompt_logprobs
        return prompt_tokens * (echoed + listed)
