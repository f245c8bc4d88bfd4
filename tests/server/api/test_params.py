"""Sampling parameters from a body: spellings of words, breakers, and what would leave nothing to say."""

from typing import Any

import pytest

from model.sampling_params import SamplingParams
from server.api.params import sampling_params
from server.api.types import CompletionBody
from server.engine.errors import InvalidValue
from tests.helpers.api_world import make_world


def params(**fields: Any) -> SamplingParams:
    return sampling_params(CompletionBody(prompt="a", **fields), None, make_world().serving.model)


def test_a_bad_word_is_spelled_as_it_stands_after_nothing_a_space_and_a_line_break() -> None:
    assert params(bad_words=["ab"]).bad_words == ((32, 97, 98), (97, 98))


def test_breakers_are_the_last_tokens_of_their_strings_and_only_sent_when_dry_is_on() -> None:
    assert params(dry_multiplier=1.0).dry_sequence_breakers == tuple(sorted(b'\n:"*'))
    assert params(dry_multiplier=1.0, dry_sequence_breakers=["xy", "z"]).dry_sequence_breakers == tuple(b"yz")
    assert params(dry_multiplier=1.0, dry_sequence_breakers=[]).dry_sequence_breakers == ()
    assert params(dry_sequence_breakers=["x"]).dry_sequence_breakers == ()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"allowed_token_ids": [97], "bad_words": ["a"]}, "allowed_token_ids"),
        ({"allowed_token_ids": [97, 98], "bad_words": ["ca", "b"]}, "allowed_token_ids"),
        ({"allowed_token_ids": [257], "min_tokens": 1}, "allowed_token_ids"),
    ],
)
def test_what_would_leave_no_token_to_choose_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidValue, match="no token is left") as found:
        params(**fields)
    assert found.value.param == named


def test_one_token_that_is_always_possible_is_enough() -> None:
    assert params(allowed_token_ids=[97, 98], bad_words=["a"]).allowed_token_ids == (97, 98)
    assert params(allowed_token_ids=[257], min_tokens=0).allowed_token_ids == (257,)
