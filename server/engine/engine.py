"""The synchronous core: requests in, one step at a time, events out.

Composes scheduler, cache, model and sampler. Knows no text, no HTTP, no asyncio and no wall clock: the clock is handed
in. It has no threads of its own: grammars are compiled, and masks filled beside the model, on those of `Grammars`. The
same requests in the same order with the same step budgets give the same events, but for when a grammar is ready.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from cache.manager import CacheManager
from cache.picture import NUM_COLOURS, runs, shrink
from model.sampling import Sampled
from model.scores import Scores
from server.engine.compiling import Compiling
from server.engine.constraint import Grammars
from server.engine.generation import Generation
from server.engine.grammar import BadConstraint
from server.engine.isolation import run_isolated
from server.engine.pacing import Pacer
from server.engine.parts import Chooser, Runner
from server.engine.reloading import Reloading
from server.engine.request import GroupPicture, GroupStats, Request, StepStats, TokenEvent, TokenLogprob
from server.engine.scheduler import Limits, Scheduler, Work
from server.engine.scoring import choice_logprobs, first_rows, score_prompts

MOST_CELLS = 4096  # of a picture: more than that is more than a screen shows


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step brought to the requests it touched (and submits and cancels before it), and what it did."""

    events: list[TokenEvent]
    stats: StepStats


class Engine:
    """Runs many requests together, so that none notices the others.

    block_bytes: bytes of one cache block, per KV group. clear: zeroes blocks of a KV group, `KVPool.clear`.
    clock: seconds, monotonic. grammars: None where constrained requests are not served.
    """

    def __init__(
        self,
        manager: CacheManager,
        runner: Runner,
        sampler: Chooser,
        limits: Limits,
        *,
        block_bytes: Sequence[int],
        clear: Callable[[int, Sequence[int]], None],
        clock: Callable[[], float],
        grammars: Grammars | None = None,
        disk: Reloading | None = None,
    ) -> None:
        self._manager = manager
        self._runner = runner
        self._sampler = sampler
        self._block_bytes = tuple(block_bytes)
        self._clock = clock
        self._scheduler = Scheduler(manager, limits, clear, disk)
        self._pacer = Pacer(
            target_s=limits.target_inter_token_s, floor=limits.block_size, most=limits.max_num_batched_tokens
        )
        self._grammars = grammars or Grammars(lambda: None)
        self._compiling = Compiling(self._grammars)
        self._arrivals = count()
        self._live: dict[str, Generation] = {}
        self._timed: dict[str, Generation] = {}  # those of them that have a deadline
        self._events: list[TokenEvent] = []  # not yet delivered
        self._tell_begun: Callable[[Sequence[str]], None] = lambda request_ids: None

    @property
    def has_work(self) -> bool:
        """Whether the next step would run or deliver something. False while all that is left waits for its grammar."""
        if self._events or len(self._live) > len(self._compiling) or self._compiling.any_ready:
            return True
        if self._scheduler.disk.wants_step:
            return True
        deadline = self.next_deadline
        return deadline is not None and deadline <= self._clock()

    @property
    def next_deadline(self) -> float | None:
        """When has_work becomes true by itself, on the engine's clock, because someone has no time left."""
        return self._compiling.next_deadline

    def on_ready(self, wake: Callable[[], None]) -> None:
        """`wake` is called, on another thread, when has_work may have become true by itself."""
        self._compiling.on_ready(wake)
        self._scheduler.disk.on_change(wake)

    def on_begin(self, tell: Callable[[Sequence[str]], None]) -> None:
        """`tell` hears the ids of those that left the line, before the step that first runs them."""
        self._tell_begun = tell

    def submit(self, requests: Sequence[Request]) -> None:
        """New requests join the line, in order. One that can never run gets its error with the next step."""
        now = self._clock()
        for request in requests:
            assert request.id not in self._live, f"request {request.id} is already under way"
            since = now if request.waiting_since is None else request.waiting_since
            generation = Generation(request, arrival=next(self._arrivals), waiting_since=since)
            fault = self._fault(request)
            if fault:
                self._events.append(generation.event(finish="error", error=fault))
                continue
            self._live[request.id] = generation
            if request.deadline is not None:
                self._timed[request.id] = generation
            if request.constraint is None:
                self._scheduler.add(generation)
            else:
                self._compiling.add(generation, request.constraint)

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Stop these now, wherever they stand; their blocks are back when this returns. Unknown ids ended meanwhile."""
        for request_id in request_ids:
            if request_id in self._live:
                self._end(self._live[request_id], self._live[request_id].event(finish="cancelled"))

    def step(self) -> StepOutcome:
        """Run one step, and deliver its events and those of submits and cancels since the last.

        Never raises for one request's fault: that one ends with finish "error", and what it computed is discarded.
        """
        started = self._clock()
        self._join_compiled()
        self._expire(started)
        budget = self._pacer.budget(self._scheduler.num_decoding)
        plan = self._scheduler.plan(budget, now=started)
        counted = plan.counts()
        for generation in plan.impossible:
            self._fail(generation, "the KV cache is too small for this request even alone")
        if plan.admitted:
            self._tell_begun([each.request.id for each in plan.admitted])
        self._run(plan.work)
        seconds = self._clock() - started
        self._pacer.observe(
            prompt_tokens=counted[0], decode_tokens=counted[2], seconds=seconds, pairs=plan.prompt_pairs
        )
        events, self._events = self._events, []
        return StepOutcome(events, self._stats(seconds, counted, num_preempted=len(plan.preempted)))

    def stats(self) -> StepStats:
        """How things stand, without a step."""
        return self._stats(0.0, (0, 0, 0), num_preempted=0)

    def _join_compiled(self) -> None:
        """Those whose constraint is compiled join the end of the line; a constraint that is none ends its request."""
        for generation, error in self._compiling.take_ready():
            if error is None:
                self._scheduler.add(generation)
                continue
            del self._live[generation.request.id]
            self._timed.pop(generation.request.id, None)
            event = generation.event(finish="error", error=str(error), refused=isinstance(error, BadConstraint))
            self._events.append(event)

    def _fault(self, request: Request) -> str | None:
        """Why it can never run; None when it can. The API refuses such requests earlier, with a better message."""
        if not request.prompt:
            return "a request needs at least one prompt token"
        # the last token's keys and values are never needed
        num_tokens = len(request.prompt) + max(request.max_tokens - 1, 0)
        if self._manager.can_ever_fit(num_tokens):
            return None
        return f"{num_tokens} tokens can never fit the KV cache of {self._manager.capacity_tokens} tokens"

    def picture(self) -> tuple[GroupPicture, ...]:
        """How the blocks of each group are used, one colour per running sequence."""
        coloured = [(each.running_sequence, each.arrival % NUM_COLOURS) for each in self._scheduler.running]
        shrunk = [shrink(states, MOST_CELLS) for states in self._manager.picture(coloured)]
        return tuple(GroupPicture(stride, runs(cells)) for stride, cells in shrunk)

    def _expire(self, now: float) -> None:
        """Whoever has no time left ends with what there is, in the line too."""
        for generation in [each for each in self._timed.values() if (each.request.deadline or 0.0) <= now]:
            generation.leave_line(now)
            generation.note_time(now)
            self._end(generation, generation.event(finish="length", ended_by="deadline"))

    def _run(self, work: Sequence[Work]) -> None:
        """Compute, commit and choose. A request whose computation raises ends alone."""
        if not work:
            return
        masks = {each.generation.arrival: each.generation.grammar for each in work if each.chooses}
        filling = self._grammars.fill({arrival: mask for arrival, mask in masks.items() if mask is not None})
        outcomes = run_isolated(self._forward, work)
        faults = filling.result()
        for part, scores in outcomes:
            if isinstance(scores, Exception):
                self._fail(part[0].generation, f"the model failed: {scores!r}")
                continue
            scored, choices = score_prompts(part, scores), self._choose(part, scores, faults)
            now = self._clock()
            for each in part:
                each.generation.note_time(now)
                arrival = each.generation.arrival
                self._commit(each, choices.get(arrival), scored.get(arrival, ()))

    def _forward(self, work: Sequence[Work]) -> Scores:
        return self._runner.run([each.chunk for each in work])

    def _choose(
        self, work: Sequence[Work], scores: Scores, faults: Mapping[int, Exception]
    ) -> dict[int, Sampled | Exception]:
        """The next token of each, by arrival number; one whose sampling raises gets its exception.

        faults: of those whose mask could not be made, by arrival number.
        """

        def sample(numbered: Sequence[tuple[int, Work]]) -> list[Sampled]:
            its = scores if len(numbered) == len(scores) else scores.pick([row for row, _ in numbered])
            return self._sampler.choose(its, [each.generation.row for _, each in numbered])

        choices: dict[int, Sampled | Exception] = {**faults}
        numbered = tuple(
            (row + each.num_scored, each)
            for row, each in zip(first_rows(work), work, strict=True)
            if each.chooses and each.generation.arrival not in faults
        )
        for part, result in run_isolated(sample, numbered) if numbered else ():
            results: Sequence[Sampled | Exception] = [result] if isinstance(result, Exception) else result
            choices |= {each.generation.arrival: its for (_, each), its in zip(part, results, strict=True)}
        return choices

    def _commit(
        self, work: Work, choice: Sampled | Exception | None, scored: tuple[TokenLogprob, ...] | Exception
    ) -> None:
        """Enter what was computed into the cache, and the prompt's scores and the new token into the answer."""
        generation = work.generation
        if isinstance(choice, Exception):
            self._fail(generation, f"sampling failed: {choice!r}")
            return
        if isinstance(scored, Exception):
            self._fail(generation, f"scoring the prompt failed: {scored}")
            return
        if choice is not None and choice.failed:
            self._fail(generation, generation.why_no_token)
            return
        self._manager.commit(generation.running_sequence, len(work.chunk.tokens))
        generation.note_computed()
        generation.num_scored += work.num_scored
        if choice is None:
            if not generation.remaining and not generation.uncomputed:  # only its prompt was to be run
                self._end(generation, generation.event(finish="length", prompt_logprobs=scored))
            elif scored or generation.request.wants_progress:
                self._events.append(generation.event(prompt_logprobs=scored))
            return
        finish = generation.append(choice.token)
        logprobs = choice_logprobs(generation.request, choice)
        event = generation.event((choice.token,), logprobs, finish=finish, prompt_logprobs=scored)
        if finish:
            self._end(generation, event)
        else:
            self._events.append(event)

    def _fail(self, generation: Generation, error: str) -> None:
        self._end(generation, generation.event(finish="error", error=error))

    def _end(self, generation: Generation, event: TokenEvent) -> None:
        """Take it off the scheduler and say so with its last event. What a failed one computed is not trusted."""
        if not self._compiling.remove(generation):
            self._scheduler.remove(generation, discard=event.finish == "error")
        del self._live[generation.request.id]
        self._timed.pop(generation.request.id, None)
        self._events.append(event)

    def _stats(self, seconds: float, counted: tuple[int, int, int], *, num_preempted: int) -> StepStats:
        groups = zip(self._manager.stats(), self._block_bytes, strict=True)
        return StepStats(
            seconds=seconds,
            prompt_tokens=counted[0],
            recomputed_tokens=counted[1],
            decode_tokens=counted[2],
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting) + len(self._compiling),
            preemptions=num_preempted,
            groups=tuple(GroupStats(each.used, each.cached, each.free, size) for each, size in groups),
            disk=self._scheduler.disk.stats(),
        )
