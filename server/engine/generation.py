"""The progress of one `Request` through the engine: what is written so far, and where in the line it stands.

Knows no blocks and no batch: its `CacheSequence` is opened, filled and closed by the scheduler.
"""

from dataclasses import dataclass, field

from cache.manager import CacheSequence
from model.sampling import SamplingRow
from server.engine.constraint import GrammarMask
from server.engine.request import EndedBy, FinishReason, Request, TokenEvent, TokenLogprob


@dataclass(slots=True, eq=False)
class Generation:
    """One request under way. It waits while `sequence` is None; then it runs: first its prompt, then token by token.

    arrival        place in the order of all requests; a smaller one goes first and is preempted last
    tokens         prompt and output in one growing list, which the CacheSequence shares
    output         the generated ids alone: the tail of `tokens`
    row            how its next token is chosen
    grammar        which tokens its constraint allows next; None without one, and until it is compiled
    high_water     positions below it were computed or taken from the cache once, so running them again is recomputing
    cached_tokens  prompt positions that the cache saved it from ever computing
    waiting_since  when it last joined the waiting line, in the engine's clock
    queue_seconds  total time in the waiting line, also after a preemption
    num_scored     how many of the prompt's tokens, from the second on, have their log-probabilities
    """

    request: Request
    arrival: int
    waiting_since: float
    tokens: list[int] = field(init=False)
    stop_ids: frozenset[int] = field(init=False)
    output: list[int] = field(default_factory=list)
    row: SamplingRow = field(init=False)
    sequence: CacheSequence | None = None
    high_water: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    queue_seconds: float = 0.0
    grammar: GrammarMask | None = None
    num_scored: int = 0
    arrived: float = field(init=False)
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.arrived = self.waiting_since
        self.tokens = list(self.request.prompt)
        self.row = SamplingRow(self.request.params, len(self.tokens), self.request.prompt, self.output)
        self.stop_ids = frozenset(self.request.params.stop_token_ids)

    @property
    def running_sequence(self) -> CacheSequence:
        """Its sequence in the cache, for callers that know it is running."""
        assert self.sequence is not None, f"{self.request.id} waits"
        return self.sequence

    @property
    def uncomputed(self) -> int:
        """How many of its tokens still have to be run; at least the last one, whose logits give the next."""
        return len(self.tokens) - self.running_sequence.num_computed

    @property
    def decoding(self) -> bool:
        """Whether its next chunk is one generated token, rather than a piece of its prompt or of what was preempted."""
        return bool(self.output) and self.uncomputed == 1

    @property
    def to_score(self) -> int:
        """How many of its prompt's tokens still have to get their log-probabilities."""
        if self.request.prompt_logprobs is None:
            return 0
        return len(self.request.prompt) - 1 - self.num_scored

    @property
    def remaining(self) -> int:
        """How many more tokens it may generate."""
        return self.request.max_tokens - len(self.output)

    @property
    def why_no_token(self) -> str:
        """What to say where none could be chosen."""
        if self.grammar is None:
            return "the model's logits are not finite"
        return "no token is left that both the constraint and the request's bans allow, or the logits are not finite"

    def constrain(self, grammar: GrammarMask) -> None:
        """Its constraint is compiled. The model's end tokens end it from now on, even those that it was to ignore."""
        self.grammar = grammar
        self.row.mask = grammar.mask
        self.stop_ids |= grammar.end_ids

    def admit(self, sequence: CacheSequence, now: float) -> None:
        """It leaves the waiting line and runs on `sequence`."""
        self.sequence = sequence
        self.queue_seconds += now - self.waiting_since
        self.note_cached()

    def leave_line(self, now: float) -> None:
        """It ends without having been let in (again): that was time in the line, too."""
        if self.sequence is None:
            self.queue_seconds += now - self.waiting_since

    def preempt(self, now: float) -> None:
        """Back into the waiting line. What it wrote stays; the caller closes the sequence."""
        self.sequence = None
        self.preemptions += 1
        self.waiting_since = now

    def note_cached(self) -> None:
        """Count what the cache just gave: prompt positions that it had never computed itself."""
        reached = min(self.running_sequence.num_computed, len(self.request.prompt))
        self.cached_tokens += max(reached - self.high_water, 0)
        self.note_computed()

    def note_computed(self) -> None:
        """Raise the high water to what its sequence now holds."""
        self.high_water = max(self.high_water, self.running_sequence.num_computed)

    def note_time(self, now: float) -> None:
        """Before its next token is added: what was not waiting was work on its prompt, then on its output."""
        worked = now - self.arrived - self.queue_seconds
        if self.output:
            self.decode_seconds = worked - self.prompt_seconds
        else:
            self.prompt_seconds = worked

    def append(self, token: int) -> FinishReason | None:
        """Add a generated token; says whether the answer ends with it."""
        self.tokens.append(token)
        self.output.append(token)
        self.row.position = len(self.tokens)
        if token in self.stop_ids:
            return "stop"
        return "length" if self.remaining <= 0 else None

    def event(
        self,
        tokens: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] = (),
        *,
        finish: FinishReason | None = None,
        error: str | None = None,
        ended_by: EndedBy = "",
        refused: bool = False,
        prompt_logprobs: tuple[TokenLogprob, ...] = (),
    ) -> TokenEvent:
        """What to tell the API process about this request after a step."""
        return TokenEvent(
            request_id=self.request.id,
            tokens=tokens,
            logprobs=logprobs,
            finish=finish,
            error=error,
            cached_tokens=self.cached_tokens,
            preemptions=self.preemptions,
            queue_seconds=self.queue_seconds,
            ended_by=ended_by,
            prompt_seconds=self.prompt_seconds,
            decode_seconds=self.decode_seconds,
            prompt_logprobs=prompt_logprobs,
            refused=refused,
            prompt_done=min(self.high_water, len(self.request.prompt)),
        )
