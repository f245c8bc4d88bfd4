"""A tokenizer goes into GGUF metadata as llama.cpp's converter writes it, and comes back with the same ids."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer as Backend

from model.tokenizer.base import Tokenizer, TokenizerError
from model.tokenizer.gguf import open_gguf_tokenizer
from tests.helpers.nasty_texts import NASTY_TEXTS, long_text, random_texts
from tests.helpers.tiny_tokenizers import (
    byte_level_backend,
    gguf_of_backend,
    gguf_of_sentencepiece,
    sentencepiece_proto,
)

TEXTS = [*NASTY_TEXTS, *random_texts(4, 300), long_text()]


@pytest.fixture(scope="module")
def backend() -> Backend:
    return byte_level_backend()


@pytest.fixture
def byte_level(backend: Backend) -> dict[str, Any]:
    return gguf_of_backend(backend, "gpt-2")


@pytest.fixture(scope="module", params=[True, False], ids=["spaced", "unspaced"])
def proto(request: pytest.FixtureRequest) -> bytes:
    return sentencepiece_proto(add_dummy_prefix=request.param)


@pytest.fixture(scope="module")
def library(proto: bytes) -> SentencePieceProcessor:
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(proto)
    return processor


@pytest.fixture(scope="module")
def rebuilt(proto: bytes, library: SentencePieceProcessor) -> Tokenizer:
    return open_gguf_tokenizer(metadata_of(proto, library))


@pytest.fixture
def pieces(proto: bytes, library: SentencePieceProcessor) -> dict[str, Any]:
    return metadata_of(proto, library)


def metadata_of(proto: bytes, library: SentencePieceProcessor) -> dict[str, Any]:
    spaced = library.encode("a", out_type=str)[0].startswith("▁")
    return gguf_of_sentencepiece(proto, add_space_prefix=spaced)


class TestByteLevel:
    """tokenizer.ggml.model = gpt2."""

    def test_ids_are_the_originals(self, byte_level: dict[str, Any], backend: Backend) -> None:
        tokenizer = open_gguf_tokenizer(byte_level)
        for text in TEXTS:
            assert tokenizer.encode(text, add_bos=False) == backend.encode(text, add_special_tokens=False).ids

    def test_control_tokens_are_special_and_user_defined_ones_are_text(self, byte_level: dict[str, Any]) -> None:
        tokenizer = open_gguf_tokenizer(byte_level)
        tool = byte_level["tokenizer.ggml.tokens"].index("<tool>")
        assert set(tokenizer.special_tokens) == {"<s>", "</s>", "<|im_start|>", "<|im_end|>"}
        assert tokenizer.encode("<tool>", add_bos=False) == [tool]
        assert tokenizer.special_id("<|im_end|>") not in tokenizer.encode("<|im_end|>", add_bos=False)
        assert tokenizer.encode_template("<|im_end|>") == [tokenizer.special_id("<|im_end|>")]

    @pytest.mark.parametrize(("pre", "adds"), [("gpt-2", False), ("llama-bpe", True), ("tekken", True)])
    def test_whether_prompts_begin_with_bos_is_known_by_kind(
        self, byte_level: dict[str, Any], pre: str, adds: bool
    ) -> None:
        known = byte_level | {"tokenizer.ggml.pre": pre, "tokenizer.ggml.bos_token_id": 260}
        assert open_gguf_tokenizer(known).adds_bos == adds
        assert open_gguf_tokenizer(known | {"tokenizer.ggml.add_bos_token": not adds}).adds_bos == (not adds)

    def test_ends_are_eos_end_of_turn_and_end_of_message(self, byte_level: dict[str, Any]) -> None:
        ends = {"tokenizer.ggml.eos_token_id": 7, "tokenizer.ggml.eot_token_id": 8, "tokenizer.ggml.eom_token_id": 9}
        assert open_gguf_tokenizer(byte_level | ends).eos_ids == {7, 8, 9}

    def test_whole_words_that_are_tokens_win_over_merges_where_the_kind_says_so(self) -> None:
        vocabulary = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": ["a", "b", "c", "bc", "ab", "abc"],
            "tokenizer.ggml.merges": ["b c", "a b"],  # nothing merges to "abc"
        }
        by_kind = {pre: open_gguf_tokenizer(vocabulary | {"tokenizer.ggml.pre": pre}) for pre in ("gpt-2", "llama3")}
        assert by_kind["gpt-2"].encode("abc", add_bos=False) == [0, 3]
        assert by_kind["llama3"].encode("abc", add_bos=False) == [5]

    def test_tokens_that_only_fill_the_vocabulary_up_are_nothing(self, byte_level: dict[str, Any]) -> None:
        tokens = [*byte_level["tokenizer.ggml.tokens"], "[PAD7]"]
        types = [*byte_level["tokenizer.ggml.token_type"], 5]
        padded = byte_level | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
        tokenizer = open_gguf_tokenizer(padded)
        assert tokenizer.vocab_size == len(tokens)
        assert tokenizer.piece(len(tokens) - 1) == b""

    def test_an_unknown_kind_of_cutting_is_named(self, byte_level: dict[str, Any]) -> None:
        with pytest.raises(TokenizerError, match=r"tokenizer\.ggml\.pre = 'never-heard-of'.*llama-bpe"):
            open_gguf_tokenizer(byte_level | {"tokenizer.ggml.pre": "never-heard-of"})

    def test_a_file_older_than_kinds_is_cut_as_gpt2(self, byte_level: dict[str, Any], backend: Backend) -> None:
        del byte_level["tokenizer.ggml.pre"]
        text = "It's 12345 o'clock"
        ids = open_gguf_tokenizer(byte_level).encode(text, add_bos=False)
        assert ids == backend.encode(text, add_special_tokens=False).ids

    @pytest.mark.parametrize("merges", [["a"], ["no such"], ["a b c d"]])
    def test_merges_that_do_not_fit_are_refused(self, byte_level: dict[str, Any], merges: list[str]) -> None:
        with pytest.raises(TokenizerError, match="merges"):
            open_gguf_tokenizer(byte_level | {"tokenizer.ggml.merges": merges})


class TestSentencePiece:
    """tokenizer.ggml.model = llama."""

    def test_ids_are_the_originals(self, rebuilt: Tokenizer, library: SentencePieceProcessor) -> None:
        for text in TEXTS:
            assert rebuilt.encode(text, add_bos=False) == library.encode(text), text[:80]

    @settings(max_examples=300, deadline=None)
    @given(text=st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=40))
    def test_ids_of_any_text_are_the_originals(
        self, rebuilt: Tokenizer, library: SentencePieceProcessor, text: str
    ) -> None:
        assert rebuilt.encode(text, add_bos=False) == library.encode(text)

    def test_every_piece_is_the_originals(self, rebuilt: Tokenizer, library: SentencePieceProcessor) -> None:
        for i in range(library.get_piece_size()):
            special = library.is_control(i) or library.is_unknown(i)
            byte = bytes([int(library.id_to_piece(i)[3:5], 16)]) if library.is_byte(i) else None
            assert rebuilt.piece(i) == (b"" if special else byte or library.id_to_piece(i).replace("▁", " ").encode())

    def test_user_defined_spaces_and_newlines_are_matched(self, pieces: dict[str, Any]) -> None:
        tokenizer = open_gguf_tokenizer(pieces)
        tokens = pieces["tokenizer.ggml.tokens"]
        assert tokenizer.encode("x\n\n<b>", add_bos=False)[-2:] == [tokens.index("\n\n"), tokens.index("<b>")]
        assert tokens.index("  ") in tokenizer.encode("x  y", add_bos=False)

    def test_bos_space_and_end_are_llama_cpps_defaults(self, pieces: dict[str, Any]) -> None:
        del pieces["tokenizer.ggml.add_space_prefix"]
        tokenizer = open_gguf_tokenizer(pieces | {"tokenizer.ggml.eot_token_id": 5})
        assert (tokenizer.adds_bos, tokenizer.adds_space) == (True, True)
        assert tokenizer.eos_ids == {pieces["tokenizer.ggml.eos_token_id"], 5}
        assert not open_gguf_tokenizer(pieces | {"tokenizer.ggml.add_bos_token": False}).adds_bos

    @pytest.mark.parametrize("kinds", [(3, 3), (2, 2), (1, 3)], ids=["all control", "two unknown", "unknown is text"])
    def test_any_marking_of_the_unknown_token_loads(
        self, pieces: dict[str, Any], rebuilt: Tokenizer, kinds: tuple[int, int]
    ) -> None:
        types = list(pieces["tokenizer.ggml.token_type"])
        unknown = pieces["tokenizer.ggml.unknown_token_id"]
        types[unknown], types[pieces["tokenizer.ggml.tokens"].index("<start>")] = kinds
        tokenizer = open_gguf_tokenizer(pieces | {"tokenizer.ggml.token_type": types})
        assert tokenizer.encode("a", add_bos=False) == rebuilt.encode("a", add_bos=False)
        assert tokenizer.piece(unknown) == b""

    def test_doubled_and_empty_tokens_are_nothing_and_the_first_one_counts(self, pieces: dict[str, Any]) -> None:
        tokens = [*pieces["tokenizer.ggml.tokens"], "<b>", "", ""]
        longer = pieces | {
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [*pieces["tokenizer.ggml.token_type"], 1, 1, 5],
            "tokenizer.ggml.scores": [*pieces["tokenizer.ggml.scores"], 0.0, 0.0, 0.0],
        }
        tokenizer = open_gguf_tokenizer(longer)
        assert tokenizer.encode("<b>", add_bos=False)[-1] == tokens.index("<b>")
        assert [tokenizer.piece(i) for i in range(len(tokens) - 3, len(tokens))] == [b"", b"", b""]

    def test_missing_byte_tokens_are_refused(self, pieces: dict[str, Any]) -> None:
        types = list(pieces["tokenizer.ggml.token_type"])
        types[types.index(6)] = 1
        with pytest.raises(TokenizerError, match="255 byte tokens"):
            open_gguf_tokenizer(pieces | {"tokenizer.ggml.token_type": types})


@pytest.mark.parametrize("kind", ["bert", "t5", None])
def test_other_kinds_of_tokenizer_are_refused_by_name(byte_level: dict[str, Any], kind: str | None) -> None:
    with pytest.raises(TokenizerError, match=rf"tokenizer\.ggml\.model = {kind!r}"):
        open_gguf_tokenizer(byte_level | {"tokenizer.ggml.model": kind})


@pytest.mark.parametrize("key", ["scores", "token_type"])
def test_lists_of_other_lengths_are_refused(pieces: dict[str, Any], key: str) -> None:
    name = f"tokenizer.ggml.{key}"
    with pytest.raises(TokenizerError, match=rf"{key} has \d+ entries for"):
        open_gguf_tokenizer(pieces | {name: pieces[name][:-1]})


@pytest.mark.parametrize("tokens", [[], "text", None])
def test_no_tokens_are_refused(byte_level: dict[str, Any], tokens: Any) -> None:
    with pytest.raises(TokenizerError, match="tokens"):
        open_gguf_tokenizer(byte_level | {"tokenizer.ggml.tokens": tokens})
