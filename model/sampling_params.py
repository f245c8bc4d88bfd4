"""How a next token is chosen, as data. Checked at the border (`server.api`), trusted here. No torch."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """temperature 0 is greedy whatever else is set. seed None means: not reproducible; the service draws one.

    choice           index of this answer within its prompt; with seed and position it determines the random number
    top_k            0 is off
    num_logprobs     None: none wanted; 0: only the chosen token's; k: the k best as well (k <= 20)
    min_tokens       stop_token_ids are impossible until so many tokens were generated
    stop_token_ids   end the answer (the model's own end tokens included, unless ignore_eos)
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int = 0
    choice: int = 0
    num_logprobs: int | None = None
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
