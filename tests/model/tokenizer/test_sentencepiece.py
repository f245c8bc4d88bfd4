"""Expectations come from the sentencepiece library itself, used plainly on the same model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor

from model.tokenizer import sentencepiece
from model.tokenizer.base import InvalidText, TokenizerError
from model.tokenizer.sentencepiece import SentencePieceTokenizer
from tests.helpers.nasty_texts import NASTY_TEXTS, long_text, random_texts
from tests.helpers.tiny_tokenizers import sentencepiece_proto

Load = Callable[..., SentencePieceTokenizer]
SPACED, UNSPACED = True, False


@pytest.fixture(scope="module")
def protos() -> dict[bool, bytes]:
    return {spaced: sentencepiece_proto(add_dummy_prefix=spaced) for spaced in (SPACED, UNSPACED)}


@pytest.fixture
def load(tmp_path: Path, protos: dict[bool, bytes]) -> Load:
    """Loads a tokenizer.model with a tokenizer_config.json of these entries and an added_tokens.json."""

    def load(spaced: bool, added: dict[str, int] | None = None, **config: Any) -> SentencePieceTokenizer:
        path = tmp_path / "tokenizer.model"
        path.write_bytes(protos[spaced])
        return sentencepiece.load(path, config, added or {})

    return load


@pytest.fixture
def original(protos: dict[bool, bytes]) -> Callable[[bool], SentencePieceProcessor]:
    def original(spaced: bool) -> SentencePieceProcessor:
        processor = SentencePieceProcessor()
        processor.LoadFromSerializedProto(protos[spaced])
        return processor

    return original


@pytest.mark.parametrize("spaced", [SPACED, UNSPACED])
def test_ids_are_the_librarys(load: Load, original: Callable[[bool], SentencePieceProcessor], spaced: bool) -> None:
    tokenizer, library = load(spaced), original(spaced)
    for text in [*NASTY_TEXTS, *random_texts(2, 500), long_text()]:
        assert tokenizer.encode(text, add_bos=False) == library.encode(text), text[:80]


@pytest.mark.parametrize("spaced", [SPACED, UNSPACED])
def test_pieces_of_a_text_are_its_bytes_with_the_space_that_encoding_adds(load: Load, spaced: bool) -> None:
    tokenizer = load(spaced)
    assert tokenizer.adds_space == spaced
    for text in [*NASTY_TEXTS, *random_texts(3, 200)]:
        ids = tokenizer.encode(text, add_bos=False)
        expected = (" " if spaced and text else "") + text.replace("▁", " ")
        assert b"".join(map(tokenizer.piece, ids)).decode() == expected


def test_special_token_text_that_a_user_types_is_text(load: Load) -> None:
    tokenizer = load(UNSPACED)
    for special, token_id in tokenizer.special_tokens.items():
        ids = tokenizer.encode(f"x{special}y", add_bos=True)
        assert ids.count(token_id) == (1 if token_id == tokenizer.bos_id else 0)
        assert b"".join(map(tokenizer.piece, ids)).decode() == f"x{special}y"


def test_user_defined_symbols_are_matched_in_what_a_user_types(load: Load) -> None:
    tokenizer = load(UNSPACED)
    ids = tokenizer.encode("x\n\n<b>  ", add_bos=False)
    assert [tokenizer.piece(i) for i in ids] == [b"x", b"\n\n", b"<b>", b"  "]


class TestTemplates:
    """Rendered templates, cut at their special tokens."""

    def test_special_tokens_count_and_marked_ones_do_not(self, load: Load) -> None:
        tokenizer = load(UNSPACED)
        start, end = tokenizer.special_tokens["<start>"], tokenizer.special_tokens["<end>"]
        ids = tokenizer.encode_template("<start>a<\ue000end>\ue000<end>b<end>", literal_mark="\ue000")
        assert ids == [start, *tokenizer.encode("a<end><end>b", add_bos=False), end]

    def test_every_section_has_a_space_as_the_library_gives_it(self, load: Load) -> None:
        tokenizer = load(SPACED)
        start = tokenizer.special_tokens["<start>"]
        a, b = (tokenizer.encode(text, add_bos=False) for text in "ab")
        assert tokenizer.encode_template("a<start>b") == [*a, start, *b]

    def test_without_legacy_only_the_beginning_has_one(self, load: Load) -> None:
        tokenizer, unspaced = load(SPACED, legacy=False), load(UNSPACED)
        start = tokenizer.special_tokens["<start>"]
        pieces = [tokenizer.piece(i) for i in tokenizer.encode_template("a<start>b")]
        assert b"".join(pieces) == b" ab"
        assert [tokenizer.piece(i) for i in tokenizer.encode_template("<start>b")] == [b"", b"b"]
        assert unspaced.encode_template("<start>b")[0] == start

    def test_bos_is_not_added(self, load: Load) -> None:
        tokenizer = load(UNSPACED)
        assert tokenizer.encode_template("<s>a").count(tokenizer.bos_id) == 1
        assert tokenizer.bos_id not in tokenizer.encode_template("a")


class TestConfig:
    """What tokenizer_config.json and added_tokens.json add."""

    def test_bos_and_eos_come_from_the_model_unless_the_config_names_others(self, load: Load) -> None:
        plain, named = load(UNSPACED), load(UNSPACED, bos_token="<start>", eos_token={"content": "<end>"})
        assert (plain.bos_id, plain.eos_ids) == (plain.special_tokens["<s>"], {plain.special_tokens["</s>"]})
        assert (named.bos_id, named.eos_ids) == (plain.special_tokens["<start>"], {plain.special_tokens["<end>"]})

    @pytest.mark.parametrize(("config", "adds"), [({}, True), ({"add_bos_token": False}, False)])
    def test_prompts_begin_with_bos_unless_the_config_says_no(self, load: Load, config: Any, adds: bool) -> None:
        tokenizer = load(UNSPACED, **config)
        assert tokenizer.adds_bos == adds
        assert (tokenizer.encode("", add_bos=True) == [tokenizer.bos_id]) == adds

    def test_a_symbol_that_the_config_calls_special_is_not_matched_in_text(self, load: Load) -> None:
        plain = load(UNSPACED)
        symbol = plain.encode("<b>", add_bos=False)[0]
        entry = {"content": "<b>", "special": True}
        tokenizer = load(UNSPACED, added_tokens_decoder={str(symbol): entry})
        assert symbol not in tokenizer.encode("x<b>y", add_bos=False)
        assert tokenizer.encode_template("<b>") == [symbol] == [tokenizer.special_id("<b>")]
        assert tokenizer.piece(symbol) == b""

    def test_added_tokens_beyond_the_model_are_matched_and_gaps_are_nothing(self, load: Load) -> None:
        size = load(UNSPACED).vocab_size
        config = {"added_tokens_decoder": {str(size + 2): {"content": "<new end>", "special": True}}}
        tokenizer = load(UNSPACED, {"<tool call>": size}, **config)
        assert tokenizer.encode("x<tool call>", add_bos=False)[-1] == size
        assert tokenizer.piece(size) == b"<tool call>"
        assert tokenizer.special_tokens["<new end>"] == size + 2
        assert size + 2 not in tokenizer.encode("<new end>", add_bos=False)
        assert tokenizer.piece(size + 1) == b""
        assert tokenizer.vocab_size == size + 3


def test_ids_outside_the_vocabulary_and_special_ones_have_no_bytes(load: Load) -> None:
    tokenizer = load(UNSPACED)
    ids = [*tokenizer.special_tokens.values(), tokenizer.vocab_size, 10**9, -1]
    assert [tokenizer.piece(i) for i in ids] == [b""] * len(ids)


def test_names_are_readable(load: Load) -> None:
    tokenizer = load(UNSPACED)
    byte = tokenizer.encode("\U0010ffff", add_bos=False)[0]
    assert tokenizer.name(tokenizer.special_tokens["<start>"]) == "<start>"
    assert tokenizer.name(tokenizer.encode(" the", add_bos=False)[0]) == " the"
    assert (tokenizer.piece(byte), tokenizer.name(byte)) == (b"\xf4", "\ufffd")
    assert tokenizer.name(10**9) == ""


def test_lone_surrogates_are_refused(load: Load) -> None:
    tokenizer = load(UNSPACED)
    with pytest.raises(InvalidText, match="character 2"):
        tokenizer.encode("ok\ud800", add_bos=False)
    with pytest.raises(InvalidText, match="character 0"):
        tokenizer.encode_template("\udfff<start>")


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x0a\x05abc"])
def test_a_broken_file_is_one_clear_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(data)
    with pytest.raises(TokenizerError, match=r"tokenizer\.model") as error:
        sentencepiece.load(path, {}, {})
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.model: No such file"):
        sentencepiece.load(tmp_path / "tokenizer.model", {}, {})
