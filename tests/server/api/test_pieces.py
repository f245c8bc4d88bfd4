"""Where each token lies in the text: exact bytes, or null where the tokenizer changed the text itself."""

from collections.abc import Sequence
from functools import cache

import pytest

from model.tokenizer.hf import HFTokenizer
from model.tokenizer.sentencepiece import SentencePieceTokenizer
from server.api.pieces import located, readable
from tests.helpers.nasty_texts import NASTY_TEXTS, random_texts
from tests.helpers.tiny_text import TinyTokenizer, ids_of, piece_id
from tests.helpers.tiny_tokenizers import byte_level_backend, sentencepiece_proto

TINY = TinyTokenizer()


def spans(ids: Sequence[int], text: str) -> list[tuple[object, object]]:
    return [(entry["start"], entry["end"]) for entry in located(TINY, ids, text)]


def test_offsets_count_bytes_not_characters() -> None:
    assert spans([*"é".encode(), piece_id("🎉"), 97], "é🎉a") == [(0, 1), (1, 2), (2, 6), (6, 7)]


def test_a_bos_that_is_not_in_the_text_is_empty_and_one_that_is_counts() -> None:
    assert spans(ids_of(256, "a"), "a") == [(0, 0), (0, 1)]
    assert spans(ids_of(256, "a"), "<bos>a") == [(0, 5), (5, 6)]


def test_a_space_that_the_tokenizer_put_before_the_text_is_not_in_it() -> None:
    assert spans([piece_id(" the"), 98], "theb") == [(0, 3), (3, 4)]


def test_from_the_first_change_on_there_are_no_offsets() -> None:
    assert spans(ids_of("axb"), "ayb") == [(0, 1), (None, None), (None, None)]
    assert spans(ids_of("a", 257, "b"), "ab") == [(0, 1), (None, None), (None, None)]


def test_the_readable_text_has_special_tokens_by_name() -> None:
    assert readable(TINY, ids_of(256, "hé", 259, piece_id("🎉"))) == "<bos>hé<|end|>🎉"
    assert readable(TINY, [0xC3]) == "\ufffd"


@pytest.mark.parametrize("text", [*NASTY_TEXTS, *random_texts(7, 30)])
def test_a_byte_level_tokenizer_covers_every_byte(text: str) -> None:
    tokenizer = HFTokenizer(byte_level_backend(), bos="<s>", eos=["</s>"], adds_bos=True)
    entries = located(tokenizer, tokenizer.encode(text, add_bos=True), text)
    ends = [0, *(entry["end"] for entry in entries)]
    assert [entry["start"] for entry in entries] == ends[:-1]
    assert ends[-1] == len(text.encode())


@pytest.mark.parametrize("dummy", [True, False])
@pytest.mark.parametrize("text", [*NASTY_TEXTS, *random_texts(8, 30)])
def test_sentencepiece_covers_every_byte_or_says_from_where_on_it_can_not(text: str, dummy: bool) -> None:
    proto = sentencepiece_proto_of(dummy)
    tokenizer = SentencePieceTokenizer(proto, special_tokens={"<start>": 3}, bos_id=1, eos_ids=[2], adds_bos=True)
    entries, source = located(tokenizer, tokenizer.encode(text, add_bos=True), text), text.encode()
    for entry in entries[1:]:
        if entry["start"] is not None:
            assert source[entry["start"] : entry["end"]] == bytes(entry["bytes"]).removeprefix(b" ") or (
                source[entry["start"] : entry["end"]] == bytes(entry["bytes"])
            )
    if "\u2581" not in text:  # which SentencePiece takes for a space
        assert entries[-1]["end"] == len(source)


@cache
def sentencepiece_proto_of(dummy: bool) -> bytes:
    return sentencepiece_proto(add_dummy_prefix=dummy)
