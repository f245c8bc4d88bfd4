"""DRY against its author's words: place by place, in any order of growth, with breakers and a range."""

from dataclasses import replace
from random import Random

import pytest

from model.dry import SPARE, Repetitions
from model.sampling_params import SamplingParams
from tests.helpers.reference_sampler import dry_losses

ON = SamplingParams(dry_multiplier=1.0, dry_base=2.0)


def losses(prompt: list[int], output: list[int], params: SamplingParams = ON) -> dict[int, float]:
    found = Repetitions(prompt, params.dry_sequence_breakers)
    found.update(output)
    ids, amounts = found.penalties(params)
    return dict(zip(ids.tolist(), amounts.tolist(), strict=True))


def test_what_followed_the_same_tokens_before_is_penalised_by_their_number() -> None:
    assert losses([1, 2, 3, 9, 1, 2], []) == {3: 1.0}
    assert losses([7, 1, 2, 3, 9, 7, 1, 2], []) == {3: 2.0}
    assert losses([1, 2, 3, 9, 2], []) == {}, "one token is below allowed_length"
    assert losses([1, 2, 3, 9, 2], [], replace(ON, dry_allowed_length=1)) == {3: 1.0}


def test_the_longest_of_several_repetitions_counts() -> None:
    assert losses([5, 1, 2, 3, 8, 1, 2, 3, 9, 5, 1, 2], []) == {3: 2.0}


def test_a_repetition_across_prompt_and_output_counts() -> None:
    assert losses([1, 2, 3, 9], [1, 2]) == {3: 1.0}


def test_breakers_end_a_repetition_and_are_not_penalised() -> None:
    broken = replace(ON, dry_sequence_breakers=(7,))
    assert losses([1, 7, 2, 3, 4, 9, 1, 7, 2, 3], [], broken) == {4: 1.0}
    assert losses([1, 2, 7, 9, 1, 2], [], broken) == {}
    assert losses([1, 2, 7, 1, 2, 7], [], broken) == {}


def test_only_the_range_is_looked_at() -> None:
    text = [1, 2, 3, 9, 1, 2]
    assert losses(text, [], replace(ON, dry_penalty_last_n=6)) == {3: 1.0}
    assert losses(text, [], replace(ON, dry_penalty_last_n=5)) == {}
    assert losses(text, [], replace(ON, dry_penalty_last_n=0)) == {}


def test_a_text_of_one_token_repeated_is_penalised_without_overflow() -> None:
    ((token, loss),) = losses([4] * 5000, []).items()
    assert token == 4
    assert 1e300 < loss < float("inf")


@pytest.mark.parametrize("seed", range(40))
def test_any_text_in_any_parts_agrees_with_plain_python(seed: int) -> None:
    random = Random(seed)
    alphabet = random.choice([1, 2, 3, 8])
    text = [random.randrange(alphabet) for _ in range(random.randrange(1, 60))]
    params = replace(
        ON,
        dry_base=random.choice([1.0, 1.75]),
        dry_allowed_length=random.choice([1, 2, 4]),
        dry_penalty_last_n=random.choice([-1, -1, 0, 1, 7, 30, 1000]),
        dry_sequence_breakers=random.choice([(), (), (0,), (1, 5)]),
    )
    for cut in {0, 1, len(text) // 2, len(text)}:
        assert losses(text[:cut], text[cut:], params) == pytest.approx(dry_losses(text, params))


def test_growing_token_by_token_is_the_same_as_from_scratch_also_beyond_the_spare_room() -> None:
    random = Random(1)
    text = [random.randrange(3) for _ in range(2 * SPARE + 20)]
    grown = Repetitions([], ())
    for size in range(1, len(text) + 1):
        grown.update(text[:size])
        if size % 50 == 0 or size == len(text):
            ids, amounts = grown.penalties(ON)
            assert dict(zip(ids.tolist(), amounts.tolist(), strict=True)) == losses(text[:size], [])
