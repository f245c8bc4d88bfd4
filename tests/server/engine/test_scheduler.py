"""Who gets what in a step: decodes first, prompts by arrival, admission by room, preemption of the youngest."""

from itertools import count

import pytest

from cache.groups import KVGroup
from cache.manager import CacheManager
from model.sampling_params import SamplingParams
from server.engine.generation import Generation
from server.engine.pacing import Budget
from server.engine.request import Request
from server.engine.scheduler import Limits, Plan, Scheduler

BLOCK = 4


class Bench:
    """A scheduler over a real cache; its steps compute nothing and generate the numbers 1000, 1001, ..."""

    def __init__(
        self,
        *,
        num_blocks: int = 100,
        max_num_seqs: int = 8,
        most: int = 64,
        window: int | None = None,
        prefix_cache: bool = True,
    ) -> None:
        groups = [KVGroup(None, (0,))] if window is None else [KVGroup(None, (0,)), KVGroup(window, (1,))]
        self.manager = CacheManager(
            groups, [num_blocks + 1] * len(groups), block_size=BLOCK, max_chunk=most, prefix_cache=prefix_cache
        )
        self.cleared: list[tuple[int, list[int]]] = []
        self.scheduler = Scheduler(
            self.manager,
            Limits(max_num_seqs, most, BLOCK),
            lambda group, blocks: self.cleared.append((group, [*blocks])),
        )
        self.most = most
        self.arrivals = count()
        self.fresh = count(1000)

    def add(self, name: str, prompt: int | list[int], *, max_tokens: int = 10, salt: str = "") -> Generation:
        """A request with a prompt of these tokens, or of so many that it shares with nobody."""
        arrival = next(self.arrivals)
        tokens = [10_000 * (arrival + 1) + i for i in range(prompt)] if isinstance(prompt, int) else prompt
        request = Request(name, tuple(tokens), max_tokens, SamplingParams(), cache_salt=salt)
        generation = Generation(request, arrival, waiting_since=0.0)
        self.scheduler.add(generation)
        return generation

    def plan(self, budget: int | None = None, now: float = 1.0) -> Plan:
        return self.scheduler.plan(Budget(self.most if budget is None else budget), now=now)

    def commit(self, plan: Plan) -> None:
        """As if the step had been run."""
        for work in plan.work:
            self.manager.commit(work.generation.running_sequence, len(work.chunk.tokens))
            work.generation.note_computed()
            if work.chunk.num_logits and work.generation.append(next(self.fresh)):
                self.scheduler.remove(work.generation)
        self.manager.check()

    def step(self, budget: int | None = None) -> dict[str, int]:
        """Plan and commit: how many tokens each got."""
        plan = self.plan(budget)
        shares = {work.generation.request.id: len(work.chunk.tokens) for work in plan.work}
        self.commit(plan)
        return shares

    def names(self) -> tuple[list[str], list[str]]:
        """Who runs and who waits, in order."""
        running = [each.request.id for each in self.scheduler.running]
        return running, [each.request.id for each in self.scheduler.waiting]


def test_prompts_are_cut_into_pieces_that_fit_the_budget() -> None:
    bench = Bench()
    bench.add("a", 20)
    assert [bench.step(budget=8) for _ in range(4)] == [{"a": 8}, {"a": 8}, {"a": 4}, {"a": 1}]


def test_only_the_last_piece_of_a_prompt_asks_for_logits() -> None:
    bench = Bench()
    bench.add("a", 20)
    rows = []
    for _ in range(4):
        plan = bench.plan(budget=8)
        rows += [(work.chunk.start, work.chunk.num_logits) for work in plan.work]
        bench.commit(plan)
    assert rows == [(0, 0), (8, 0), (16, 1), (20, 1)]


def test_a_piece_holds_the_tokens_at_its_positions() -> None:
    bench = Bench()
    generation = bench.add("a", 10)
    bench.step(budget=7)
    (work,) = bench.plan(budget=7).work
    assert list(work.chunk.tokens) == list(generation.request.prompt[7:])
    assert [len(table) for table in work.chunk.tables] == [3]


def test_prompts_share_the_budget_first_come_first_served() -> None:
    bench = Bench()
    for name in "abc":
        bench.add(name, 10)
    assert bench.step(budget=16) == {"a": 10, "b": 6}
    assert bench.step(budget=16) == {"a": 1, "b": 4, "c": 10}


def test_every_decode_gets_its_token_even_without_budget_for_prompts() -> None:
    bench = Bench(max_num_seqs=4)
    for name in "abc":
        bench.add(name, 4)
    bench.step()
    bench.add("d", 30)
    for _ in range(3):
        assert bench.step(budget=1) == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_an_older_prompt_that_takes_the_whole_budget_leaves_younger_streams_their_tokens() -> None:
    bench = Bench()
    shared = list(range(12))
    bench.add("a", [*shared, 50])
    bench.add("b", [*shared, *range(60, 90)])  # waits for a's blocks, and has a lot to do then
    bench.add("c", 4)
    assert bench.step(budget=18) == {"a": 13, "c": 4}
    assert bench.step(budget=5) == {"a": 1, "b": 5, "c": 1}


def test_no_more_sequences_run_than_allowed() -> None:
    bench = Bench(max_num_seqs=2)
    for name in "abc":
        bench.add(name, 4, max_tokens=2)
    bench.step()
    assert bench.names() == (["a", "b"], ["c"])
    bench.step()
    bench.step()
    assert bench.names() == (["c"], [])


def test_a_prompt_comes_in_only_when_it_fits_beside_what_runs() -> None:
    bench = Bench(num_blocks=11)
    bench.add("a", 20, max_tokens=4)
    bench.add("b", 20, max_tokens=4)
    assert bench.step(budget=24) == {"a": 20}, "the block for a's output is spoken for, though it is still free"
    while bench.names()[0] == ["a"]:
        bench.step(budget=8)
    bench.step(budget=8)
    assert bench.names() == (["b"], [])


def test_a_small_late_comer_does_not_overtake_the_head_of_the_line() -> None:
    bench = Bench(num_blocks=12)
    bench.add("big", 24, max_tokens=5)
    bench.step()
    bench.add("second", 24, max_tokens=2)
    bench.add("tiny", 1, max_tokens=1)
    while bench.names()[0] == ["big"]:
        assert bench.names()[1] == ["second", "tiny"]
        bench.step()
    assert list(bench.step()) == ["second", "tiny"]


def test_the_first_may_come_in_whenever_nobody_runs() -> None:
    bench = Bench(num_blocks=6)
    bench.add("a", 20, max_tokens=5)
    assert bench.step() == {"a": 20}, "20 + 4 tokens fill all blocks exactly: no headroom left, none needed"


def test_the_youngest_goes_back_when_blocks_run_out_for_a_decode() -> None:
    bench = Bench(num_blocks=6)
    a = bench.add("a", 8, max_tokens=16)
    b = bench.add("b", 4, max_tokens=16)
    preempted = []
    while not preempted:
        plan = bench.plan()
        preempted = plan.preempted
        shares = [work.generation for work in plan.work]
        bench.commit(plan)
    assert preempted == [b]
    assert shares == [a], "the step goes on with the oldest"
    assert bench.names() == (["a"], ["b"])
    assert b.preemptions == 1
    assert len(b.output) > 0
    assert b.sequence is None


def test_who_was_thrown_out_is_not_let_in_by_the_same_step_and_returns_in_order() -> None:
    bench = Bench(num_blocks=8)
    for name in "abc":
        bench.add(name, 4, max_tokens=20)
    seen = []
    for _ in range(60):
        plan = bench.plan()
        if plan.preempted:
            assert not plan.admitted
            seen.append([each.request.id for each in plan.preempted])
        bench.commit(plan)
        running, waiting = bench.names()
        assert running + waiting == sorted(running + waiting), "older before younger, running before waiting"
    assert ["c"] in seen
    assert ["b"] in seen
    assert bench.names() == ([], [])


def test_the_oldest_is_never_preempted() -> None:
    bench = Bench(num_blocks=6, most=8)
    names = [f"{i}" for i in range(8)]
    for name in names:
        bench.add(name, 6, max_tokens=12)
    while sum(map(len, bench.names())):
        oldest = bench.scheduler.running[0] if bench.scheduler.running else None
        plan = bench.plan()
        assert oldest not in plan.preempted
        if oldest:
            assert plan.work[0].generation is oldest, "it moves on in every step"
        bench.commit(plan)


def test_a_stream_that_gets_no_token_does_not_count_as_running() -> None:
    """Not even the youngest, which has nobody to throw out but itself."""
    bench = Bench(num_blocks=9)
    for name in "abc":
        bench.add(name, 6, max_tokens=20)
    num_preempted = 0
    while sum(map(len, bench.names())):
        plan = bench.plan()
        advanced = [work.generation for work in plan.work]
        assert all(each in advanced for each in bench.scheduler.running if each.decoding)
        num_preempted += len(plan.preempted)
        bench.commit(plan)
    assert num_preempted >= 2


def test_after_a_preemption_the_next_piece_starts_where_the_cache_ends() -> None:
    bench = Bench(num_blocks=6)
    bench.add("a", 8, max_tokens=9)
    b = bench.add("b", 7, max_tokens=9)
    while b.preemptions == 0:
        bench.step()
    written = len(b.tokens)
    while b.sequence is None:
        plan = bench.plan()
        work = [each for each in plan.work if each.generation is b]
        bench.commit(plan)
    assert work[0].chunk.start + len(work[0].chunk.tokens) == written
    assert work[0].chunk.start % BLOCK == 0
    assert list(work[0].chunk.tokens) == b.tokens[work[0].chunk.start : written]
    assert b.running_sequence.num_computed == written
    assert work[0].chunk.num_logits == 1
    assert work[0].decode_tokens == 1
    assert work[0].prompt_tokens == work[0].recomputed_tokens == written - work[0].chunk.start - 1


def test_a_prompt_waits_for_blocks_in_the_making_without_holding_up_others() -> None:
    bench = Bench()
    shared = list(range(12))
    bench.add("a", [*shared, 50])
    bench.add("b", [*shared, 60, 61])
    bench.add("c", 8)
    assert bench.step(budget=10) == {"a": 10}
    assert bench.names() == (["a"], ["b", "c"]), "no budget is left to let anyone in"
    assert bench.step(budget=16) == {"a": 3, "c": 8}, "b waits for the third block"
    assert bench.names() == (["a", "b", "c"], [])
    assert bench.step(budget=16) == {"a": 1, "b": 2, "c": 1}


def test_when_the_owner_goes_in_the_middle_the_first_waiter_computes_the_rest_and_the_others_wait_for_it() -> None:
    bench = Bench()
    shared = list(range(16))
    a = bench.add("a", [*shared, 50])
    for name in "bc":
        bench.add(name, [*shared, 60])
    bench.step(budget=6)
    plan = bench.plan(budget=3)
    assert [work.generation for work in plan.work] == [a]
    bench.commit(plan)
    bench.scheduler.remove(a)
    assert bench.step(budget=5) == {"b": 5}, "blocks 0 and 1 came from a"
    assert bench.step(budget=30) == {"b": 4}
    assert bench.step(budget=30) == {"b": 1, "c": 1}


def test_salts_do_not_share() -> None:
    bench = Bench()
    bench.add("a", list(range(12)), salt="x")
    bench.add("b", list(range(12)), salt="y")
    assert bench.step() == {"a": 12, "b": 12}


@pytest.mark.parametrize("where", ["waiting", "prompt", "decode"])
def test_removing_gives_the_blocks_back_at_once(where: str) -> None:
    bench = Bench(num_blocks=20)
    generation = bench.add("a", 10)
    if where != "waiting":
        bench.step(budget=5 if where == "prompt" else 10)
    bench.scheduler.remove(generation)
    (usage,) = bench.manager.stats()
    assert (usage.used, usage.cached + usage.free) == (0, 20)
    assert bench.names() == ([], [])
    assert not bench.plan().work


def test_what_a_discarded_sequence_wrote_is_cleared_and_not_found_again() -> None:
    bench = Bench()
    generation = bench.add("a", list(range(10)))
    bench.step()
    (table,) = generation.running_sequence.tables
    written = sorted(table)
    bench.scheduler.remove(generation, discard=True)
    assert sorted(block for _, blocks in bench.cleared for block in blocks) == written
    bench.add("b", list(range(10)))
    assert bench.step() == {"b": 10}


def test_ordinary_ends_clear_nothing_and_keep_the_prefix() -> None:
    bench = Bench()
    generation = bench.add("a", list(range(10)))
    bench.step()
    bench.scheduler.remove(generation)
    assert bench.cleared == []
    bench.add("b", list(range(10)))
    assert bench.step() == {"b": 2}


def test_what_fits_not_even_alone_is_named_and_nobody_suffers_for_it() -> None:
    bench = Bench(num_blocks=4)
    bench.add("a", 4, max_tokens=3)
    bench.step()
    big = bench.add("big", 17)
    bench.add("c", 4, max_tokens=1)
    while bench.names()[0] == ["a"]:
        bench.step()
    plan = bench.plan()
    assert plan.impossible == [big]
    bench.scheduler.remove(big)
    bench.commit(plan)
    assert bench.step() == {"c": 4} or bench.names() == ([], [])


def test_a_window_lets_in_what_the_whole_length_would_not() -> None:
    bench = Bench(num_blocks=40, window=6, most=8)
    bench.manager = CacheManager(
        [KVGroup(None, (0,)), KVGroup(6, (1,))], [41, 13], block_size=BLOCK, max_chunk=8
    )  # the windowed group could never hold two whole prompts of 60 tokens, nor one
    bench.scheduler = Scheduler(bench.manager, Limits(8, 8, BLOCK), lambda group, blocks: None)
    for name in "ab":
        bench.add(name, 60, max_tokens=4)
    bench.step(budget=8)
    bench.step(budget=8)
    while bench.names()[1]:
        bench.step(budget=8)
        assert sum(map(len, bench.names())) == 2, "the second comes in while the first still runs"
