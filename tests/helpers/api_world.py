"""The API over an engine that plays what a test wrote down. Real text, real submissions, real figures."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from msgspec import structs
from starlette.types import ASGIApp

from model.tokenizer.base import Tokenizer
from model.tokenizer.chat import ChatTemplate
from server.api.account import Account
from server.api.routes import create_app
from server.api.serving import ModelFacts, SamplingDefaults, ServedModel, Serving
from server.engine.admission import Admission, Visitor
from server.engine.errors import ServiceError
from server.engine.inflight import InFlight
from server.engine.request import FinishReason, GroupPicture, Request, TokenEvent, TokenLogprob
from server.engine.submission import Submission
from server.engine.wire import Ready
from server.keys import Key, KeyRing
from server.metrics import Metrics
from tests.helpers.tiny_text import TinyTokenizer, ids_of, tiny_template

READY = Ready(
    cache_tokens=400,
    cache_bytes=2**20,
    max_model_len=200,
    device="cpu",
    backend="torch",
    dtype="float32",
    kv_cache_dtype="float32",
    threads=1,
    bit_exact=False,
    load_seconds=0.1,
)

# One step of a play: events of any of the requests, a death, or a wait until the test lets it go on.
Step = Sequence[TokenEvent] | ServiceError | asyncio.Event
Play = Callable[[Sequence[Request]], Iterable[Step]]


def events_of(
    request: Request,
    tokens: Sequence[int],
    *,
    finish: FinishReason = "length",
    per_step: int = 1,
    cached: int = 0,
) -> list[list[TokenEvent]]:
    """The steps that bring `tokens` to one request. Logprobs, if asked for, say which token it is: -token / 1000."""
    steps = []
    for at in range(0, max(len(tokens), 1), per_step):
        part = tuple(tokens[at : at + per_step])
        last = at + per_step >= len(tokens)
        event = TokenEvent(
            request.id,
            tokens=part,
            logprobs=tuple(scored(token, request.params.num_logprobs) for token in part)
            if request.params.num_logprobs is not None
            else (),
            finish=finish if last else None,
            cached_tokens=cached,
            queue_seconds=0.25,
            prompt_logprobs=_prompt_scores(request) if at == 0 else (),
        )
        steps.append([event])
    return steps


def _prompt_scores(request: Request) -> tuple[TokenLogprob, ...]:
    if request.prompt_logprobs is None:
        return ()
    return tuple(scored(token, request.prompt_logprobs) for token in request.prompt[1:])


def scored(token: int, num_top: int) -> TokenLogprob:
    """A token's logprob, and so many alternatives: the token itself and its successors."""
    top = tuple(token + k for k in range(num_top))
    return TokenLogprob(-token / 1000, top, tuple(-i / 1000 for i in top))


def says(*parts: str | int, finish: FinishReason = "stop", per_step: int = 1, cached: int = 0) -> Play:
    """Every request gets this, cut at its max_tokens; then "length". The stop token is <eos>."""

    def play(requests: Sequence[Request]) -> Iterable[Step]:
        ids = list(ids_of(*parts)) + ([257] if finish == "stop" else [])
        lines = []
        for request in requests:
            cut = ids[: request.max_tokens]
            how = finish if len(cut) == len(ids) else "length"
            lines.append(events_of(request, cut, finish=how, per_step=per_step, cached=cached))
        for step in range(max(map(len, lines))):
            yield [event for line in lines if step < len(line) for event in line[step]]

    return play


@dataclass
class FakeService:
    """Plays `play` to every submission, one step per turn of the event loop."""

    play: Play = field(default_factory=lambda: says("Hello"))
    info: Ready | None = READY
    state: str = "ready"
    reason: str = "ready"
    refuse: ServiceError | None = None

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.submitted: list[Request] = []
        self.cancelled: list[str] = []
        self.visitors: list[Visitor] = []
        self.watched: list[int] = []  # the intervals that were asked for
        self.picture: tuple[GroupPicture, ...] = ()
        self.admission = Admission(running_limit=8, waiting_requests=100, waiting_tokens=None, clock=count().__next__)
        self.in_flight = InFlight(self.admission, on_cancel=self._note_cancel, on_discard=self.metrics.discarded)
        self._tasks: set[asyncio.Task[None]] = set()

    def _note_cancel(self, request_ids: Sequence[str], *, answered: bool) -> None:
        self.cancelled.extend(request_ids)

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    def knock(self, visitor: Visitor) -> None:
        if self.refuse:
            raise self.refuse
        self.admission.knock(visitor)

    def submit(self, requests: Sequence[Request], visitor: Visitor) -> Submission:
        if self.refuse:
            raise self.refuse
        self.visitors.append(visitor)
        self.admission.check(visitor, requests)
        self.submitted += requests
        submission = self.in_flight.add(requests, visitor)
        task = asyncio.ensure_future(self._run(requests))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return submission

    def watch(self, interval_ms: int) -> None:
        self.watched.append(interval_ms)
        self.picture = (GroupPicture(1, (3, 2, 0, 5)),) if interval_ms else ()

    async def _run(self, requests: Sequence[Request]) -> None:
        for step in self.play(requests):
            for _ in range(3):  # a step takes a moment: whoever waits gets its turn
                await asyncio.sleep(0)
            if isinstance(step, ServiceError):
                self.in_flight.fail(step)
                return
            if isinstance(step, asyncio.Event):
                await step.wait()
                continue
            for event in step:
                self.in_flight.take(event)


@dataclass
class World:
    """An application and what is behind it."""

    service: FakeService
    serving: Serving
    app: ASGIApp

    def figure(self, name: str, **labels: str) -> float:
        """The value of one of Prometheus' samples; 0 when there is none yet."""
        return self.service.metrics.registry.get_sample_value(name, labels) or 0.0


def key_ring(*keys: str | Key) -> KeyRing:
    """A ring of these; a plain secret belongs to an owner of the same name."""
    made = tuple(key if isinstance(key, Key) else Key(key, key.encode()) for key in keys)
    return KeyRing(lambda: made)


def make_world(
    play: Play | None = None,
    *,
    keys: Sequence[str | Key] = (),
    tokenizer: Tokenizer | None = None,
    chats: bool = True,
    defaults: SamplingDefaults | None = None,
    ping_s: float = 60.0,
    max_sequences: int = 16,
    share_prefixes: bool = False,
    trusts_templates: bool = False,
    template: ChatTemplate | None = None,
    open_metrics: bool = False,
    default_timeout_s: float | None = None,
    digest: str = "d1gest",
    origins: Sequence[str] = (),
    log_prompts: bool = False,
    trace: Callable[[Account], None] | None = None,
) -> World:
    """The whole API over a FakeService."""
    service = FakeService(play) if play else FakeService()
    model = ServedModel(
        id="tiny",
        created=1_700_000_000,
        tokenizer=tokenizer or TinyTokenizer(),
        template=(template or tiny_template()) if chats else None,
        eos_ids=frozenset({257, 259}),
        defaults=defaults or SamplingDefaults(),
        trusts_templates=trusts_templates,
        facts=ModelFacts(digest=digest, format="gguf", stored_bytes={"Q4_K": 90, "F32": 10}),
    )
    serving = Serving(
        model=model,
        service=service,
        metrics=service.metrics,
        max_sequences=max_sequences,
        ping_s=ping_s,
        share_prefixes=share_prefixes,
        default_timeout_s=default_timeout_s,
        log_prompts=log_prompts,
    )
    ring = key_ring(*keys) if keys else None
    app = create_app(serving, keys=ring, open_metrics=open_metrics, origins=origins, trace=trace)
    return World(service, serving, app)


def roomy(play: Play) -> World:
    """A model whose context holds what it is told of tools, byte by byte."""
    world = make_world(play)
    world.service.info = structs.replace(READY, max_model_len=5000, cache_tokens=5000)
    return world
