"""Law 6: a step advances every running stream, and prompts come in pieces that keep the gap under the target."""

from collections.abc import Sequence
from random import Random

import pytest

from model.batch import Chunk
from model.sampling_params import SamplingParams
from server.engine.request import Request
from tests.helpers.workloads import SHAPES, make_requests, scatter
from tests.helpers.worlds import Setting, World, make_world, random_setting


def expect_no_pause(world: World, before: dict[str, tuple[int, int]]) -> None:
    """Each stream that had begun and has not ended got exactly one token, or was thrown out."""
    for name, (num_tokens, preemptions) in before.items():
        answer = world.answers[name]
        if len(answer.tokens) == num_tokens and answer.finish != "cancelled":
            waiting_or_back = answer.preemptions > preemptions or world.history[-1].preemptions
            assert waiting_or_back, f"{name} was passed over"
        else:
            assert len(answer.tokens) <= num_tokens + 1


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_every_step_advances_every_running_stream(first: int) -> None:
    """With room for all: not one stream pauses once it has begun, however many prompts come and go beside it."""
    for seed in range(first, first + 20):
        rng = Random(seed)
        longest, most_new = rng.choice(SHAPES)
        setting = random_setting(rng, longest=(longest + most_new) * 24)
        requests = make_requests(rng, 20, block_size=setting.block_size, longest=longest, most_new=most_new)
        script = scatter(rng, requests, over=40)
        world = make_world(setting)
        for number in range(20_000):
            world.engine.submit(script.arrivals.get(number, []))
            if number > script.last and not world.engine.has_work:
                break
            begun = {name: len(each.tokens) for name, each in world.answers.items() if each.tokens and not each.finish}
            world.step()
            for name, num_tokens in begun.items():
                assert len(world.answers[name].tokens) == num_tokens + 1, f"{name} paused at step {number}"
        assert not world.engine.has_work


@pytest.mark.parametrize("seed", range(20))
def test_only_those_that_were_thrown_out_pause(seed: int) -> None:
    """With too few blocks: a step has a token for each stream in its batch; the others are back in the line."""
    rng = Random(seed)
    longest, most_new = 10, 54
    setting = random_setting(rng, longest=longest + most_new)
    requests = make_requests(rng, 12, block_size=setting.block_size, longest=longest, most_new=most_new)
    world = make_world(setting)
    world.engine.submit(requests)
    while world.engine.has_work:
        begun = {name: len(each.tokens) for name, each in world.answers.items() if each.tokens and not each.finish}
        stats = world.step()
        paused = [name for name, num_tokens in begun.items() if len(world.answers[name].tokens) == num_tokens]
        resuming = stats.running + stats.waiting  # those that are in the line, or run what they had written once more
        assert len(paused) <= resuming
        if paused and not stats.waiting:
            assert stats.prompt_tokens, f"{paused} paused, though nobody waits and no prompt or preempted text is run"


class CostModel:
    """Seconds of a step on an imagined machine, and the gaps that its streams saw."""

    def __init__(self, *, base_s: float, per_stream_s: float, per_token_s: float, per_context_s: float = 0.0) -> None:
        self.base_s, self.per_stream_s = base_s, per_stream_s
        self.per_token_s, self.per_context_s = per_token_s, per_context_s
        self.steps: list[tuple[int, int, float]] = []  # prompt tokens, streams, seconds

    def __call__(self, chunks: Sequence[Chunk]) -> float:
        seconds = self.base_s
        prompt_tokens = streams = 0
        for chunk in chunks:
            tokens = len(chunk.tokens)
            if tokens == 1:
                streams += 1
                seconds += self.per_stream_s
            else:
                prompt_tokens += tokens
                seconds += tokens * (self.per_token_s + self.per_context_s * chunk.start)
        self.steps.append((prompt_tokens, streams, seconds))
        return seconds


SLOW = {"base_s": 0.02, "per_stream_s": 0.001, "per_token_s": 0.002}
FAST = {"base_s": 0.003, "per_stream_s": 0.0002, "per_token_s": 0.0001}
LONG = {"base_s": 0.02, "per_stream_s": 0.001, "per_token_s": 0.001, "per_context_s": 1e-6}


@pytest.mark.parametrize("figures", [SLOW, FAST, LONG], ids=["slow", "fast", "long contexts"])
def test_prompts_beside_streams_keep_the_gap_under_the_target(figures: dict[str, float]) -> None:
    cost = CostModel(**figures)
    world = make_world(Setting(num_blocks=(4000,), block_size=16, max_num_batched_tokens=512), cost=cost)
    rng = Random(0)

    def prompt(name: str, length: int, max_tokens: int) -> Request:
        tokens = tuple(rng.randrange(3) for _ in range(length))
        return Request(name, tokens, max_tokens, SamplingParams(temperature=0.0))

    world.engine.submit([prompt(f"stream{i}", 20, 120) for i in range(4)])
    for _ in range(4):
        world.step()
    begin = len(cost.steps)
    for number in range(100):
        if number % 20 == 0:
            world.engine.submit([prompt(f"prompt{number}", 1500, 1)])
        world.step()
    both = [(tokens, seconds) for tokens, streams, seconds in cost.steps[begin:] if tokens and streams]
    assert len(both) > 10
    assert max(seconds for _, seconds in both) <= 0.1, "the target"
    full = [seconds for tokens, seconds in both if tokens < 480]
    assert not full or sorted(full)[len(full) // 2] > 0.05, "nor are prompts held back more than needed"


def test_a_short_piece_behind_a_long_cached_beginning_keeps_the_gap() -> None:
    """Turns of a long conversation between short prompts: a token costs four times as much there as in those."""
    cost = CostModel(base_s=0.01, per_stream_s=0.001, per_token_s=0.001, per_context_s=4e-7)
    world = make_world(Setting(num_blocks=(4000,), block_size=16, max_num_batched_tokens=512), cost=cost)
    rng, greedy = Random(0), SamplingParams(temperature=0.0)
    tokens = tuple(rng.randrange(3) for _ in range(8000))
    world.engine.submit([Request(f"stream{i}", (i,) * 20, 2000, greedy) for i in range(4)])
    world.engine.submit([Request("first turn", tokens[:7000], 1, greedy)])
    while world.answers.get("first turn") is None or world.answers["first turn"].finish is None:
        world.step()
    for turn in range(1, 5):
        world.engine.submit([Request(f"short {turn}", (turn,) * 400, 1, greedy)])
        for _ in range(30):
            world.step()
        begin = len(cost.steps)
        world.engine.submit([Request(f"turn {turn}", tokens[: 7000 + 200 * turn], 1, greedy)])
        for _ in range(30):
            world.step()
        both = [seconds for prompt, streams, seconds in cost.steps[begin:] if prompt and streams]
        assert both
        assert max(both) <= 0.11, f"turn {turn}"


def test_without_streams_a_step_takes_no_longer_than_a_second_once_its_cost_is_known() -> None:
    cost = CostModel(base_s=0.05, per_stream_s=0.0, per_token_s=0.01)
    world = make_world(Setting(num_blocks=(400,), block_size=16, max_num_batched_tokens=512), cost=cost)
    world.run([Request("a", (1, 2) * 1500, 2, SamplingParams(temperature=0.0))])
    assert cost.steps[0][0] == 512
    assert max(seconds for _, _, seconds in cost.steps[2:]) <= 1.05


def test_a_target_that_the_streams_alone_exceed_stops_no_prompt() -> None:
    cost = CostModel(base_s=0.3, per_stream_s=0.0, per_token_s=0.01)
    world = make_world(Setting(num_blocks=(400,), block_size=16, max_num_batched_tokens=512), cost=cost)
    world.engine.submit([Request("stream", (1, 2), 60, SamplingParams(temperature=0.0))])
    for _ in range(3):
        world.step()
    world.engine.submit([Request("prompt", (0,) * 300, 1, SamplingParams(temperature=0.0))])
    steps = 0
    while world.answers.get("prompt") is None or world.answers["prompt"].finish is None:
        world.step()
        steps += 1
        assert steps <= 300 / 16 + 2
    assert world.answers["stream"].finish is None
