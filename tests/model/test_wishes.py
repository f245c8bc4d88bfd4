"""Who may do without whole logits: only rows all of whose parameters are known to be harmless."""

from dataclasses import fields, replace

import pytest

from model.batch import MOST_BEST, Wish
from model.sampling import SamplingRow
from model.sampling_params import SamplingParams
from model.wishes import EDITS, HARMLESS, chooses_among_few, wish_of

GREEDY = SamplingParams(temperature=0.0)
FEW = SamplingParams(top_k=40, top_p=0.9)
NAMES = {field.name for field in fields(SamplingParams)}


@pytest.mark.parametrize("name", sorted(NAMES - HARMLESS))
@pytest.mark.parametrize("params", [GREEDY, FEW], ids=["greedy", "few"])
def test_a_parameter_that_is_not_listed_sends_its_row_to_whole_logits(params: SamplingParams, name: str) -> None:
    assert not wish_of(params).whole
    changed = replace(params, **{name: object()})  # whatever it may be
    assert wish_of(changed).whole
    assert chooses_among_few(replace(FEW, **{name: object()})) == (name in EDITS)


def test_only_parameters_that_exist_are_listed() -> None:
    assert NAMES >= HARMLESS | EDITS
    assert not HARMLESS & EDITS


def test_a_field_of_a_row_that_is_not_known_here_must_be_thought_about() -> None:
    """Who adds one says in `SamplingRow.wish` whether it needs whole logits, and then names it here."""
    assert {each.name for each in fields(SamplingRow)} == {
        "params",
        "position",
        "prompt",
        "output",
        "mask",
        "_history",
        "_repetitions",
        "_wish",
    }


@pytest.mark.parametrize(
    ("changes", "wish"),
    [
        ({"temperature": 0.0}, Wish(False, 1, False)),
        ({"top_k": 1}, Wish(False, 1, False)),
        ({"top_p": 0.0}, Wish(False, 1, False)),
        ({"temperature": 0.0, "num_logprobs": 0, "stop_token_ids": (3,)}, Wish(False, 1, True)),
        ({"temperature": 0.0, "num_logprobs": 20}, Wish(False, 20, True)),
        ({"top_k": 40}, Wish(False, 40, False)),
        ({"top_k": 5, "num_logprobs": 20, "min_p": 0.1}, Wish(False, 20, True)),
        ({"top_k": MOST_BEST}, Wish(False, MOST_BEST, False)),
        ({"top_k": MOST_BEST + 1}, Wish(True, 1, False)),
        ({}, Wish(True, 1, False)),
        ({"top_p": 0.9, "num_logprobs": 3}, Wish(True, 3, True)),
        ({"top_k": 40, "logit_bias": {1: 0.0}, "num_logprobs": 3}, Wish(True, 3, True)),
    ],
    ids=str,
)
def test_what_a_row_needs(changes: dict[str, object], wish: Wish) -> None:
    assert SamplingRow(replace(SamplingParams(), **changes), 5, (), ()).wish == wish  # type: ignore[arg-type]


CHANGES_LOGITS_OR_FILTERS = {
    "typical_p": 0.5,
    "xtc_probability": 0.5,
    "dry_multiplier": 1.0,
    "bad_words": ((1,),),
    "allowed_token_ids": (1, 2),
}


@pytest.mark.parametrize("name", CHANGES_LOGITS_OR_FILTERS)
@pytest.mark.parametrize("few", [{"temperature": 0.0}, {"top_k": 5}], ids=str)
def test_what_looks_at_more_than_the_few_best_needs_whole_logits(name: str, few: dict[str, float]) -> None:
    params = replace(SamplingParams(**few), **{name: CHANGES_LOGITS_OR_FILTERS[name]})  # type: ignore[arg-type]
    assert SamplingRow(params, 5, (), ()).wish.whole
