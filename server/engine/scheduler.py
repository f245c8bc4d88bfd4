"""Decides what each step runs: who decodes, whose prompt goes on, who is let in, who has to go back.

Knows requests and the cache's promises; no tensors, no clock (it is told the time) and no cost (it is told the budget).

Who is next, `server.engine.line` says; nobody overtakes the one whose turn it is. From then on everything goes by the
order in which they were let in, which "older" means here: whoever is preempted is the youngest of those that run and
returns before anybody else is let in. So the oldest is never preempted, and since every step moves it on, all end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cache.manager import CacheManager, CacheSequence
from model.batch import Chunk, Wish
from server.engine.generation import Generation
from server.engine.line import Line
from server.engine.pacing import Budget, pairs
from server.engine.reloading import NoDisk, Reloading


@dataclass(frozen=True, slots=True)
class Limits:
    """max_num_seqs may run at once, with max_num_batched_tokens in a step. block_size is the cache's.

    max_scored_tokens: so many tokens of prompts get log-probabilities in a step; each costs a row of logits.
    """

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    block_size: int = 16
    target_inter_token_s: float = 0.1
    max_scored_tokens: int = 64


@dataclass(frozen=True, slots=True)
class Work:
    """One generation's part of a step.

    decode_tokens      1 when the chunk ends with a generated token, which never ran before, else 0
    recomputed_tokens  those that ran once already, before a preemption
    num_scored         how many of the chunk's rows of logits, the first ones, score the prompt
    chooses            its last row of logits gives the next token
    """

    generation: Generation
    chunk: Chunk
    decode_tokens: int
    recomputed_tokens: int
    num_scored: int = 0
    chooses: bool = False

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, and those that a preemption made necessary again."""
        return len(self.chunk.tokens) - self.decode_tokens


@dataclass(slots=True)
class Plan:
    """What a step is to run. budget is what is left for prompts; impossible ones fit not even alone.

    scored_budget: how many more tokens of prompts may be scored.
    """

    budget: Budget
    scored_budget: int
    work: list[Work] = field(default_factory=list)
    admitted: list[Generation] = field(default_factory=list)
    preempted: list[Generation] = field(default_factory=list)
    impossible: list[Generation] = field(default_factory=list)

    def counts(self) -> tuple[int, int, int]:
        """Prompt tokens, recomputed ones among them, and decode tokens of the step, before it changes anything."""
        return (
            sum(each.prompt_tokens for each in self.work),
            sum(each.recomputed_tokens for each in self.work),
            sum(each.decode_tokens for each in self.work),
        )

    @property
    def prompt_pairs(self) -> float:
        """How often the prompt tokens of the step look at one before them."""
        return sum(pairs(each.prompt_tokens, each.chunk.start) for each in self.work)


class Scheduler:
    """The waiting line, and the running set in the order in which they were let in.

    clear zeroes blocks of a KV group in the pool. disk keeps blocks beyond the process's life.
    """

    def __init__(
        self,
        manager: CacheManager,
        limits: Limits,
        clear: Callable[[int, Sequence[int]], None],
        disk: Reloading | None = None,
    ) -> None:
        self.disk = disk or NoDisk()
        self._manager = manager
        self._limits = limits
        self._clear = clear
        self.waiting = Line()
        self.running: list[Generation] = []

    @property
    def num_decoding(self) -> int:
        """How many streams the next step advances by a token."""
        return sum(generation.decoding for generation in self.running)

    def add(self, generation: Generation) -> None:
        """A new request joins the line."""
        self.waiting.add(generation)

    def remove(self, generation: Generation, *, discard: bool = False) -> None:
        """It finished, failed or was cancelled, wherever it stood. Its blocks are back at once.

        discard: what it computed is not to be trusted, so it does not stay in the prefix cache either.
        """
        if generation.sequence is None:
            self.waiting.remove(generation)
            return
        self.running.remove(generation)
        self._keep(generation, discard=discard)
        self._close(generation.sequence, discard=discard)
        generation.sequence = None
        self.waiting.refund(generation, generation.remaining)

    def plan(self, budget: Budget, *, now: float) -> Plan:
        """Choose the next step's work and reserve its blocks.

        Every decoding stream gets its token, then prompts get pieces, oldest first, as far as the budget goes, then
        the waiting line moves up. Nobody is let in by a step that had to throw someone out.
        """
        plan = Plan(budget, self._limits.max_scored_tokens)
        self.disk.begin_step()
        for generation in tuple(self.running):
            if generation.sequence is not None:  # else it was preempted just now, for an older one
                self._advance(generation, plan, now)
        while not plan.preempted and plan.budget.room(0) > 0 and self._admit_next(plan, now):
            pass
        self.disk.end_step(idle=not plan.work)
        return plan

    def _advance(self, generation: Generation, plan: Plan, now: float) -> None:
        """Give it the tokens that are its turn, if any are."""
        num_tokens = 1 if generation.decoding else self._next_piece(generation, plan, now)
        if not num_tokens or not self._make_room(generation, num_tokens, plan, now):
            return
        if not generation.decoding:
            plan.budget.spend(num_tokens, generation.running_sequence.num_computed)
        work = _work(generation, num_tokens)
        plan.scored_budget -= work.num_scored
        plan.work.append(work)

    def _next_piece(self, generation: Generation, plan: Plan, now: float) -> int:
        """How many tokens of its prompt can run now; 0 while another sequence or the disk is about to give the next.

        While its prompt is being scored it takes nothing from others: it needs the logits.
        """
        sequence = generation.running_sequence
        if generation.to_score:
            scored_before = max(generation.num_scored - sequence.num_computed, 0)
            rest = generation.uncomputed - scored_before - generation.to_score  # the last token scores no other
            within = scored_before + plan.scored_budget
            within += rest if plan.scored_budget >= generation.to_score else 0
            return min(plan.budget.room(sequence.num_computed), within, generation.uncomputed)
        if self._manager.match(sequence):
            generation.note_cached()
        if self._manager.blocked(sequence):
            return 0
        if self.disk.waits(generation, lambda num_tokens: self._make_room(generation, num_tokens, plan, now), now):
            return 0
        return min(plan.budget.room(sequence.num_computed), generation.uncomputed)

    def _make_room(self, generation: Generation, num_tokens: int, plan: Plan, now: float) -> bool:
        """Reserve blocks for it, at the cost of younger ones. False when there are none left: then it went itself.

        The loop only looks at the youngest, which has no work in this plan yet, because the plan is made oldest first.
        """
        while not self._manager.reserve(generation.running_sequence, num_tokens):
            youngest = self.running[-1]
            if youngest is self.running[0]:
                plan.impossible.append(generation)
                return False
            self._preempt(youngest, now)
            plan.preempted.append(youngest)
            if youngest is generation:
                return False
        return True

    def _preempt(self, generation: Generation, now: float) -> None:
        """Back to the front of the line. Its blocks stay cached until someone needs them."""
        self.running.remove(generation)
        self.disk.leave(generation)
        self._close(generation.running_sequence)
        generation.preempt(now)
        self.waiting.put_back(generation)

    def _admit_next(self, plan: Plan, now: float) -> bool:
        """Let in the head of the line, if there is room for it."""
        generation = self.waiting.head()
        if generation is None or len(self.running) >= self._limits.max_num_seqs:
            return False
        request = generation.request
        sequence = self._manager.open(
            generation.tokens,
            namespace=request.namespace,
            salt=request.cache_salt,
            most=generation.num_scored if generation.to_score else None,
        )
        if not self._has_room_for(generation, sequence):
            self._close(sequence)
            return False
        self.waiting.take(generation, len(generation.tokens) - sequence.num_computed + generation.remaining)
        self.running.append(generation)
        generation.admit(sequence, now)
        plan.admitted.append(generation)
        self._advance(generation, plan, now)
        return True

    def _has_room_for(self, newcomer: Generation, sequence: CacheSequence) -> bool:
        """Whether its prompt fits beside all that the running ones will soon need, so that it won't be thrown out soon.

        The running ones need the rest of their prompts and a block's worth of output each. Alone it may always come in.
        """
        if not self.running:
            return True
        needs = [(each.running_sequence, self._soon_needed(each, each.uncomputed)) for each in self.running]
        own = self._soon_needed(newcomer, len(newcomer.tokens) - sequence.num_computed)
        return self._manager.can_hold([*needs, (sequence, own)])

    def _soon_needed(self, generation: Generation, uncomputed: int) -> int:
        """Tokens that still need room in the cache: the rest of the prompt and a little output. The last needs none."""
        return uncomputed + min(self._limits.block_size, generation.remaining) - 1

    def _keep(self, generation: Generation, *, discard: bool) -> None:
        """What it leaves on disk: its blocks if its prompt was finished, and nothing of them if it failed."""
        if discard:
            self.disk.distrust(generation)
        elif generation.output or not generation.uncomputed:
            self.disk.keep(generation)
        self.disk.leave(generation)

    def _close(self, sequence: CacheSequence, *, discard: bool = False) -> None:
        """Give its blocks back, and clear those that may hold numbers which are not finite: even 0 times NaN is NaN."""
        for group, blocks in enumerate(self._manager.close(sequence, discard=discard)):
            if blocks:
                self._clear(group, blocks)


def _work(generation: Generation, num_tokens: int) -> Work:
    """Its next num_tokens tokens as a chunk, which asks for logits if they are all it has."""
    sequence = generation.running_sequence
    start, end = sequence.num_computed, sequence.num_computed + num_tokens
    is_last = end == len(generation.tokens)
    decode_tokens = int(is_last and bool(generation.output))
    chooses = is_last and generation.remaining > 0
    num_scored, num_logits, wish = 0, int(chooses), generation.row.wish
    if generation.to_score:
        first = max(start, generation.num_scored)  # before it the scores are there
        num_scored = max(min(end, len(generation.request.prompt) - 1) - first, 0)
        num_logits = num_scored + int(is_last)
        best = max(generation.request.prompt_logprobs or 0, wish.num_best)
        wish = Wish(whole=True, num_best=best, log_sum=True)
    return Work(
        generation,
        Chunk(generation.tokens[start:end], start, sequence.tables, num_logits, wish),
        decode_tokens,
        recomputed_tokens=max(min(end - decode_tokens, generation.high_water) - start, 0),
        num_scored=num_scored,
        chooses=chooses,
    )
