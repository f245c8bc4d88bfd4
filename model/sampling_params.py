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
    typical_p        1 is off (`model.typical`)
    xtc_*            probability 0 is off (`model.xtc`)
    dry_*            multiplier 0 is off; penalty_last_n -1: all of the text; breakers are ids (`model.dry`)
    bad_words        ids of each; the last of them is impossible after the others (`model.bans`)
    allowed_token_ids  nothing else is possible; empty: everything is
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
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
