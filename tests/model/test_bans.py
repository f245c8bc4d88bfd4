"""What may not come next: too early an end, and the last token of a bad word after all its others."""

from model.bans import banned_ids
from model.sampling_params import SamplingParams

WORDS = SamplingParams(bad_words=((5,), (1, 2), (1, 1, 3)))


def test_a_word_of_one_token_is_always_banned() -> None:
    assert banned_ids(WORDS, [], []) == {5}


def test_a_longer_word_is_banned_where_it_would_be_complete() -> None:
    assert banned_ids(WORDS, [9], [1]) == {5, 2}
    assert banned_ids(WORDS, [9], [1, 1]) == {5, 2, 3}
    assert banned_ids(WORDS, [9], [1, 9]) == {5}


def test_the_prompt_may_have_begun_it() -> None:
    assert banned_ids(WORDS, [7, 1], [1]) == {5, 2, 3}
    assert banned_ids(WORDS, [7, 1, 1], []) == {5, 2, 3}
    assert banned_ids(WORDS, [1], []) == {5, 2}


def test_ends_are_banned_too_while_it_is_too_early() -> None:
    params = SamplingParams(bad_words=((5,),), min_tokens=2, stop_token_ids=(7, 8))
    assert banned_ids(params, [], [1]) == {5, 7, 8}
    assert banned_ids(params, [], [1, 1]) == {5}
