"""An engine with everything around it, and a driver that plays a script on it and watches the laws while it does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cache.groups import KVGroup
from cache.manager import CacheManager
from model.batch import Chunk
from model.sampling import SamplingRow
from model.scores import Scores
from model.scoring import score
from server.engine.constraint import Grammars
from server.engine.engine import Engine
from server.engine.reloading import Reloading
from server.engine.request import FinishReason, Request, StepStats, TokenLogprob
from server.engine.scheduler import Limits
from tests.helpers.fake_model import FakeRunner, QuickSampler, solo_logits
from tests.helpers.workloads import Script


@dataclass
class FakeClock:
    """Time that passes only when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Setting:
    """How big the engine is. windows: one KV group each, the full one first. num_blocks: usable ones, per group."""

    windows: tuple[int | None, ...] = (None,)
    num_blocks: tuple[int, ...] = (200,)
    block_size: int = 4
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 32
    prefix_cache: bool = True
    target_inter_token_s: float = 0.1


def random_setting(rng: Random, *, longest: int) -> Setting:
    """Small in all the ways that hurt: few blocks (but enough for one sequence of `longest` tokens), small steps."""
    block_size = rng.choice([2, 4, 8])
    windows = rng.choice([(None,), (None,), (None, 5), (None, 3, 9)])
    enough = -(-longest // block_size)
    return Setting(
        windows=windows,
        num_blocks=tuple(enough + rng.choice([0, 1, enough // 2, 2 * enough, 3 * enough]) for _ in windows),
        block_size=block_size,
        max_num_seqs=rng.choice([1, 3, 8, 16, 16]),
        max_num_batched_tokens=rng.choice([1, 5, 17, 64, 64]),
        prefix_cache=rng.random() < 0.8,
    )


@dataclass
class Answer:
    """What a request got, put together from its events."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason | None = None
    error: str | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    queue_seconds: float = 0.0
    num_events: int = 0
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    ended_by: str = ""
    refused: bool = False

    @property
    def said(self) -> tuple[list[int], list[TokenLogprob], FinishReason | None, list[TokenLogprob]]:
        """What must be the same in any company."""
        return self.tokens, self.logprobs, self.finish, self.prompt_logprobs


@dataclass
class World:
    """The engine of a setting over the fake model, or over a runner of your own."""

    setting: Setting
    manager: CacheManager
    engine: Engine
    runner: Any
    clock: FakeClock
    answers: dict[str, Answer] = field(default_factory=dict)
    history: list[StepStats] = field(default_factory=list)

    def step(self) -> StepStats:
        """One step; its events are added to the answers, each checked against what may follow what."""
        outcome = self.engine.step()
        for event in outcome.events:
            answer = self.answers.setdefault(event.request_id, Answer())
            assert answer.finish is None, f"{event.request_id} got an event after its last"
            answer.tokens += event.tokens
            answer.logprobs += event.logprobs
            answer.prompt_logprobs += event.prompt_logprobs
            answer.prompt_seconds, answer.decode_seconds = event.prompt_seconds, event.decode_seconds
            answer.finish, answer.error = event.finish, event.error
            answer.cached_tokens, answer.preemptions = event.cached_tokens, event.preemptions
            answer.queue_seconds, answer.ended_by = event.queue_seconds, event.ended_by
            answer.num_events += 1
        self.history.append(outcome.stats)
        return outcome.stats

    def play(self, script: Script, *, most_steps: int = 20_000, check: bool = True) -> dict[str, Answer]:
        """Play it to the end: all end within so many steps, the cache is sound after each, and comes back whole."""
        for number in range(most_steps):
            self.engine.submit(script.arrivals.get(number, []))
            self.engine.cancel(script.cancels.get(number, []))
            if number > script.last and not self.engine.has_work:
                break
            self.step()
            if check:
                self.manager.check()
        assert not self.engine.has_work, f"not at an end after {most_steps} steps"
        for request in script.requests:
            assert self.answers[request.id].finish is not None, f"{request.id} never ended"
        self.expect_all_blocks_back()
        return self.answers

    def run(self, requests: Sequence[Request]) -> dict[str, Answer]:
        """Submit all at once and play to the end."""
        return self.play(Script({0: list(requests)}))

    def expect_all_blocks_back(self) -> None:
        """Law 3: nobody runs, so every block is free or cached."""
        self.manager.check()
        for group, whole in zip(self.manager.stats(), self.setting.num_blocks, strict=True):
            assert (group.used, group.cached + group.free) == (0, whole)


def make_manager(setting: Setting) -> CacheManager:
    """The cache's book-keeping for a setting, null blocks added."""
    return CacheManager(
        [KVGroup(window, (layer,)) for layer, window in enumerate(setting.windows)],
        [n + 1 for n in setting.num_blocks],
        block_size=setting.block_size,
        max_chunk=setting.max_num_batched_tokens,
        prefix_cache=setting.prefix_cache,
    )


def make_world(
    setting: Setting = Setting(),
    *,
    runner: Any = None,
    clear: Callable[[int, Sequence[int]], None] | None = None,
    sampler: Any = None,
    cost: Callable[[Sequence[Chunk]], float] = lambda chunks: 0.001,
    disk: Callable[[CacheManager, Any], Reloading] | None = None,
    grammars: Grammars | None = None,
) -> World:
    """cost says how many seconds of the fake clock a batch takes. disk makes one of the manager and the runner."""
    clock = FakeClock()
    manager = make_manager(setting)

    def pass_time(chunks: Sequence[Chunk]) -> None:
        clock.now += cost(chunks)

    if runner is None:
        runner = FakeRunner(setting.windows, [n + 1 for n in setting.num_blocks], setting.block_size, on_step=pass_time)
    engine = Engine(
        manager,
        runner,
        sampler or QuickSampler(),
        Limits(
            max_num_seqs=setting.max_num_seqs,
            max_num_batched_tokens=setting.max_num_batched_tokens,
            block_size=setting.block_size,
            target_inter_token_s=setting.target_inter_token_s,
        ),
        block_bytes=[1024] * len(setting.windows),
        clear=clear or runner.clear,
        clock=clock,
        disk=disk(manager, runner) if disk else None,
        grammars=grammars,
    )
    return World(setting, manager, engine, runner, clock)


def solo(request: Request, windows: Sequence[int | None], sampler: Any = None) -> Answer:
    """What the fake model answers to a request, without engine, scheduler or cache."""
    sampler = sampler or QuickSampler()
    tokens, answer = list(request.prompt), Answer()
    answer.prompt_logprobs = solo_scores(request, windows)
    if request.prompt_logprobs is not None and len(answer.prompt_logprobs) < len(tokens) - 1:
        answer.finish = "error"
    if request.max_tokens == 0:
        answer.finish = "length"
    while answer.finish is None:
        row = SamplingRow(request.params, position=len(tokens), prompt=request.prompt, output=list(answer.tokens))
        choice = sampler.sample(solo_logits(tokens, windows)[None], [row])[0]
        if choice.failed:
            answer.finish = "error"
            break
        tokens.append(choice.token)
        answer.tokens.append(choice.token)
        if request.params.num_logprobs is not None:
            assert choice.logprob is not None
            answer.logprobs.append(TokenLogprob(choice.logprob, choice.top_ids, choice.top_logprobs))
        if choice.token in request.params.stop_token_ids:
            answer.finish = "stop"
        elif len(answer.tokens) == request.max_tokens:
            answer.finish = "length"
    return answer


def solo_scores(request: Request, windows: Sequence[int | None]) -> list[TokenLogprob]:
    """The log-probabilities of the prompt's tokens, each position by itself, as far as there are any."""
    if request.prompt_logprobs is None:
        return []
    entries = []
    for place in range(1, len(request.prompt)):
        logits = solo_logits(request.prompt[:place], windows).float()
        (found,) = score(Scores.of(logits[None]), [0], [request.prompt[place]], request.prompt_logprobs)
        if found.failed:
            break
        assert found.logprob is not None
        entries.append(TokenLogprob(found.logprob, found.top_ids, found.top_logprobs))
    return entries
