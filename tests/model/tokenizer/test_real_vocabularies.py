"""The catalogue's two models: their GGUFs' vocabularies give the ids of the models' own tokenizers.

original_ids.json was recorded from the originals, with the `tokenizers` library: Gemma 3's tokenizer.json, and
SmolLM2's (digits alone, then GPT-2's words). transformers' own GGUF reader is no reference here: it forgets the digits.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from model.checkpoint.source import Checkpoint, open_checkpoint
from model.tokenizer.base import Tokenizer
from model.tokenizer.chat import ChatTemplate
from model.tokenizer.open import open_chat_template, open_tokenizer
from server.engine.detokenizer import Detokenizer, decode
from tests.helpers.chat_templates import GEMMA
from tests.helpers.nasty_texts import NASTY_TEXTS, long_text, random_texts
from tests.helpers.real_models import real_model

pytestmark = pytest.mark.reference

SMOLLM2, GEMMA3 = "smollm2-135m-instruct", "gemma-3-270m"
RECORDED = json.loads((Path(__file__).parent / "original_ids.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Real:
    """A catalogue model as far as text goes."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    recorded: Any


@cache
def opened(name: str) -> Real:
    checkpoint = open_checkpoint(real_model(name))
    return Real(checkpoint, open_tokenizer(checkpoint), RECORDED[name])


@pytest.fixture(scope="module", params=[SMOLLM2, GEMMA3])
def real(request: pytest.FixtureRequest) -> Real:
    return opened(request.param)


@pytest.fixture(scope="module")
def smollm2() -> Real:
    return opened(SMOLLM2)


@pytest.fixture(scope="module")
def gemma3() -> Real:
    return opened(GEMMA3)


def digest(ids: Iterable[int]) -> str:
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()


def test_ids_of_nasty_texts_are_the_originals(real: Real) -> None:
    for text, ids in zip(NASTY_TEXTS, real.recorded["nasty"], strict=True):
        assert real.tokenizer.encode(text, add_bos=False) == ids, text


def test_ids_of_random_texts_are_the_originals(real: Real) -> None:
    texts = random_texts(5, 300)
    assert digest(i for text in texts for i in real.tokenizer.encode(text, add_bos=False)) == real.recorded["random"]


def test_ids_of_a_hundred_thousand_characters_are_the_originals(real: Real) -> None:
    assert digest(real.tokenizer.encode(long_text(), add_bos=False)) == real.recorded["long"]


def test_ids_decode_to_the_text_at_once_and_token_by_token(real: Real) -> None:
    sentencepiece = real.tokenizer.special_id("<start_of_turn>") is not None
    for text in NASTY_TEXTS:
        ids = real.tokenizer.encode(text, add_bos=True)
        expected = text.replace("▁", " ") if sentencepiece else text
        stream = Detokenizer(real.tokenizer)
        assert "".join(stream.push([i]) for i in ids) + stream.flush() == expected
        assert decode(real.tokenizer, ids) == expected


def test_special_token_text_that_a_user_types_is_text(real: Real) -> None:
    for special in list(real.tokenizer.special_tokens)[:40]:
        ids = real.tokenizer.encode(f"x{special}", add_bos=False)
        assert real.tokenizer.special_id(special) not in ids
        assert decode(real.tokenizer, ids) == f"x{special}"


def test_smollm2_has_no_bos_and_gemma_has(smollm2: Real, gemma3: Real) -> None:
    assert smollm2.tokenizer.encode("Hello", add_bos=True) == [19556]
    assert gemma3.tokenizer.encode("Hello", add_bos=True) == [2, 9259]


def test_gemma_matches_runs_of_newlines_and_spaces(gemma3: Real) -> None:
    ids = gemma3.tokenizer.encode("a\n\n\n\n    b\t\t<table>", add_bos=False)
    assert [gemma3.tokenizer.piece(i) for i in ids] == [b"a", b"\n\n\n\n", b"    ", b"b", b"\t\t", b"<table>"]


HELLO = [{"role": "user", "content": "Hello"}]


def test_smollm2_counts_31_tokens_for_hello(smollm2: Real) -> None:
    template = open_chat_template(smollm2.checkpoint, smollm2.tokenizer)
    assert template is not None
    assert len(smollm2.tokenizer.encode_template(template.render(HELLO).text)) == 31


def test_gemma_has_no_template_and_counts_10_tokens_for_hello_in_its_familys(gemma3: Real) -> None:
    """The file is a base model's; with the instruction-tuned one's template there is one BOS, the template's."""
    assert open_chat_template(gemma3.checkpoint, gemma3.tokenizer) is None
    template = ChatTemplate(
        GEMMA.source, special_tokens=gemma3.tokenizer.special_tokens, named_tokens={"bos_token": "<bos>"}
    )
    ids = gemma3.tokenizer.encode_template(template.render(HELLO).text)
    assert (len(ids), ids.count(2)) == (10, 1)


@pytest.mark.parametrize("typed", ["<|im_end|>", "<|im_start|>", "<end_of_turn>", "<start_of_turn>", "<|eot_id|>"])
def test_control_tokens_typed_in_a_chat_are_spelled_out(smollm2: Real, typed: str) -> None:
    template = open_chat_template(smollm2.checkpoint, smollm2.tokenizer)
    assert template is not None

    def count(content: str) -> int:
        rendered = template.render([{"role": "user", "content": content}])
        return len(smollm2.tokenizer.encode_template(rendered.text, literal_mark=rendered.literal_mark))

    assert count(f"x{typed}") - count("x") > 1
