"""What became of one HTTP request, for its line in the log and for its trace. Filled in by whoever knows.

Holds no key and, unless the operator wants prompts in the log, nothing that a user wrote but the path.
"""

from dataclasses import dataclass, field

from starlette.requests import Request


@dataclass(slots=True)
class Generated:
    """What a request for text brought. Times in seconds: the longest of any choice, first_token_s from its arrival.

    prompts and answers are texts as the model sees them, special tokens by their names; only where they are wanted.
    """

    answer_id: str
    model: str
    stream: bool
    num_choices: int
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    queue_s: float | None = None
    prompt_s: float | None = None
    first_token_s: float | None = None
    decode_s: float | None = None
    finish_reasons: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


@dataclass(slots=True)
class Account:
    """One request, from its head on. outcome: as `kvell_requests_total` counts it. error: the code that was sent."""

    request_id: str
    method: str
    path: str
    arrived: float  # on the monotonic clock
    traceparent: str = ""
    tracestate: str = ""
    status: int = 499  # what nginx says of a client that left before the answer
    total_s: float = 0.0
    key: str = ""  # its owner's name
    endpoint: str = ""
    outcome: str = ""
    error: str = ""
    generated: Generated | None = None
    fields: dict[str, object] = field(default_factory=dict)  # more for the log's line

    def close(self, total_s: float) -> None:
        """It has ended. Whoever did not say how is judged by the status."""
        self.total_s = total_s
        if not self.outcome:
            self.outcome = outcome_of(self.status)


def outcome_of(status: int) -> str:
    """In the words of `kvell_requests_total`."""
    if status == 499:
        return "cancelled"
    if status in (429, 503):
        return "unavailable"
    return "ok" if status < 400 else "refused" if status < 500 else "error"


def account_of(request: Request) -> Account:
    """The account that `server.api.middleware` opened for this request."""
    account: Account = request.state.account
    return account
