"""Gemma 3, loaded from one GGUF by transformers and by us. A file for each model, so that two workers share them."""

from collections.abc import Iterator

import pytest

from tests.helpers.originals import Real, both, check_a_long_prompt_in_pieces, check_logits_and_greedy_words

pytestmark = [pytest.mark.reference, pytest.mark.slow]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    with both("gemma-3-270m", tmp_path_factory.mktemp("gguf")) as loaded:
        yield loaded


def test_logits_and_greedy_words_equal_the_original_s(real: Real) -> None:
    check_logits_and_greedy_words(real, every=3)  # twice the model and five times the vocabulary of the other's


def test_a_long_prompt_in_pieces_equals_the_original(real: Real) -> None:
    check_a_long_prompt_in_pieces(real)
