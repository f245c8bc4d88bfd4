"""Laws 1 and 2 at the sampler: a row's result is a pure function of the row, to the bit.

Seed, choice and position decide the draw; what runs beside it, where it stands, and how many threads there are do not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from model.sampling import Sampled, Sampler, SamplingRow
from model.sampling_params import SamplingParams
from tests.helpers.reference_sampler import varied_params

NUM_ROWS = 64
SIZES = [(1003, 64), (49152, 64), (262144, 16)]  # vocabulary, rows


def bits(result: Sampled) -> tuple[object, ...]:
    """Everything of a result, floats to the last bit."""
    logprobs = [each.hex() for each in result.top_logprobs]
    own = None if result.logprob is None else result.logprob.hex()
    return result.token, own, result.top_ids, logprobs, result.failed


def workload(vocab: int, seed: int, num_rows: int = NUM_ROWS) -> tuple[Tensor, list[SamplingRow]]:
    """Any mixture of parameters over spread, flat, tied, masked, huge and broken rows."""
    random = np.random.default_rng(seed)
    logits = random.standard_normal((num_rows, vocab), dtype=np.float32)
    logits *= random.choice([0.2, 1, 3, 10], (num_rows, 1)).astype(np.float32)
    logits[3::8] = logits[3::8].round()
    logits[4::8] = np.where(random.random((num_rows // 8, vocab)) < 0.01, logits[4::8], -np.inf)
    logits[5::16] *= 1e6
    logits[13::16, random.integers(vocab)] = np.nan
    rows = []
    for _ in range(num_rows):
        prompt, output = (random.integers(0, vocab, int(size)).tolist() for size in random.integers(0, 300, 2))
        rows.append(SamplingRow(varied_params(random, vocab), len(prompt) + len(output), prompt, output))
    return torch.from_numpy(logits), rows


def fresh(row: SamplingRow) -> SamplingRow:
    return SamplingRow(row.params, row.position, row.prompt, row.output)


def alone(logits: Tensor, rows: Sequence[SamplingRow]) -> list[tuple[object, ...]]:
    """Each row on its own, in memory of its own."""
    return [bits(Sampler().sample(logits[i : i + 1].clone(), [fresh(row)])[0]) for i, row in enumerate(rows)]


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("vocab", "num_rows"), SIZES)
@pytest.mark.usefixtures("threads")
def test_neighbours_and_threads_change_no_bit(vocab: int, num_rows: int) -> None:
    logits, rows = workload(vocab, seed=vocab, num_rows=num_rows)
    torch.set_num_threads(1)
    expected = alone(logits, rows)
    assert sum(bool(each[-1]) for each in expected) < num_rows / 2, "most rows should be in order"
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        assert [bits(each) for each in Sampler().sample(logits, rows)] == expected
    assert alone(logits[::4], rows[::4]) == expected[::4]


@pytest.mark.parametrize("seed", range(6))
def test_any_part_of_the_batch_in_any_order_gives_the_same(seed: int) -> None:
    """One row's wishes (penalties, filters, logprobs) must not move another to a path that shows."""
    logits, rows = workload(1003, seed)
    together = [bits(each) for each in Sampler().sample(logits, rows)]
    random = np.random.default_rng(seed)
    for size in (1, 2, 7, 33, 63):
        picked = random.permutation(NUM_ROWS)[:size].tolist()
        results = Sampler().sample(logits[picked], [rows[i] for i in picked])
        assert [bits(each) for each in results] == [together[i] for i in picked]


def test_a_sampler_has_no_memory() -> None:
    logits, rows = workload(1003, seed=77)
    used = Sampler()
    first = [bits(each) for each in used.sample(logits, rows)]
    other_logits, other_rows = workload(500, seed=78)
    used.sample(other_logits, other_rows)
    assert [bits(each) for each in used.sample(logits, rows)] == first
    assert [bits(each) for each in Sampler().sample(logits, [fresh(row) for row in rows])] == first


def draws(params: SamplingParams, positions: Sequence[int]) -> list[int]:
    logits = torch.zeros(len(positions), 5000)
    return [each.token for each in Sampler().sample(logits, [SamplingRow(params, at, (), ()) for at in positions])]


def test_the_draw_depends_on_seed_choice_and_position_and_on_nothing_else() -> None:
    params, positions = SamplingParams(seed=123, choice=1), list(range(50))
    expected = draws(params, positions)
    assert draws(params, positions[::-1])[::-1] == expected
    assert [draws(params, [position])[0] for position in positions] == expected
    for other in (replace(params, seed=124), replace(params, choice=0), replace(params, seed=-123)):
        assert sum(a == b for a, b in zip(draws(other, positions), expected, strict=True)) <= 1
    assert len(set(expected)) > 45, "positions must differ from each other"


def test_prompt_and_output_do_not_move_the_draw_unless_penalised() -> None:
    logits = torch.zeros(1, 5000)
    params = SamplingParams(seed=4)
    one = Sampler().sample(logits, [SamplingRow(params, 10, [1] * 10, [])])
    two = Sampler().sample(logits, [SamplingRow(params, 10, [2] * 3, [7] * 7)])
    assert one == two


@pytest.mark.parametrize("seed", [0, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63)])
def test_any_64_bit_seed_works(seed: int) -> None:
    params = SamplingParams(seed=seed)
    assert draws(params, range(20)) == draws(params, range(20))
    assert draws(params, range(20)) != draws(replace(params, seed=seed ^ 1), range(20))
