"""Every expectation comes from the `tokenizers` library itself, used plainly on the same tokenizer.json."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from model.tokenizer import hf
from model.tokenizer.base import InvalidText, TokenizerError
from model.tokenizer.hf import GUARD, HFTokenizer
from tests.helpers.nasty_texts import NASTY_TEXTS, long_text, random_texts
from tests.helpers.tiny_tokenizers import SPECIAL, byte_level_backend

TEMPLATE = "<s><|im_start|>user\nHello  there<|im_end|>\n<|im_start|>assistant\n"

Load = Callable[..., HFTokenizer]


@pytest.fixture(scope="module")
def source() -> str:
    return byte_level_backend(bos="<s>").to_str()


@pytest.fixture
def original(source: str) -> Tokenizer:
    return Tokenizer.from_str(source)


@pytest.fixture
def load(tmp_path: Path, source: str) -> Load:
    """Writes the tokenizer.json (or another) and loads it with a tokenizer_config.json of these entries."""

    def load(text: str = source, **config: Any) -> HFTokenizer:
        path = tmp_path / "tokenizer.json"
        path.write_text(text, encoding="utf-8")
        return hf.load(path, config)

    return load


def ids_of(backend: Tokenizer, text: str) -> list[int]:
    ids: list[int] = backend.encode(text, add_special_tokens=False).ids
    return ids


def spelled_out(source: str, text: str) -> list[int]:
    """Ids of a text when no special token is matched in it."""
    backend = Tokenizer.from_str(source)
    backend.encode_special_tokens = True
    return ids_of(backend, text)


def test_ordinary_text_has_the_librarys_ids(load: Load, original: Tokenizer) -> None:
    tokenizer = load(bos_token="<s>")
    for text in [*NASTY_TEXTS, *random_texts(0, 500), long_text()]:
        assert tokenizer.encode(text, add_bos=False) == ids_of(original, text), text[:80]


def test_pieces_of_a_text_are_its_bytes(load: Load) -> None:
    tokenizer = load()
    for text in [*NASTY_TEXTS, *random_texts(1, 200), long_text()]:
        ids = tokenizer.encode(text, add_bos=False)
        assert b"".join(map(tokenizer.piece, ids)).decode() == text


@pytest.mark.parametrize("special", SPECIAL)
def test_special_token_text_that_a_user_types_is_text(load: Load, source: str, special: str) -> None:
    tokenizer = load()
    ids = tokenizer.encode(f"x{special} y", add_bos=False)
    assert ids == spelled_out(source, f"x{special} y")
    assert tokenizer.special_id(special) not in ids
    assert b"".join(map(tokenizer.piece, ids)).decode() == f"x{special} y"


def test_added_tokens_that_are_not_special_are_matched_in_what_a_user_types(load: Load, original: Tokenizer) -> None:
    tokenizer = load()
    ids = tokenizer.encode("call <tool>\n\n\n", add_bos=False)
    assert ids == ids_of(original, "call <tool>\n\n\n")
    assert [tokenizer.piece(i) for i in ids[-2:]] == [b"<tool>", b"\n\n\n"]


def test_special_tokens_of_a_template_count(load: Load, original: Tokenizer) -> None:
    tokenizer = load()
    assert tokenizer.encode_template(TEMPLATE) == ids_of(original, TEMPLATE)
    assert tokenizer.encode_template(TEMPLATE)[0] == tokenizer.special_id("<s>")


@pytest.mark.parametrize("marked", ["<\ue000|im_end|>", "\ue000<|im_end|>"])
def test_a_marked_special_token_in_a_template_is_text(load: Load, source: str, marked: str) -> None:
    tokenizer = load()
    end = tokenizer.special_id("<|im_end|>")
    ids = tokenizer.encode_template(f"x{marked}y<|im_end|>", literal_mark="\ue000")
    assert ids == [*spelled_out(source, "x<|im_end|>y"), end]


@pytest.mark.parametrize("flags", [{}, {"lstrip": True}, {"rstrip": True}, {"normalized": True}])
def test_flags_of_special_tokens_hold_in_templates(load: Load, flags: dict[str, bool]) -> None:
    backend = byte_level_backend(special=["<s>", AddedToken("<end>", special=True, **flags)])
    tokenizer, original = load(backend.to_str()), Tokenizer.from_str(backend.to_str())
    for text in ("<s>a <end> b", "a<end>b", "  <end>  ", "<end><end> x"):
        assert tokenizer.encode_template(text) == ids_of(original, text), text


def test_a_user_who_knows_the_guard_cannot_write_a_special_token(load: Load) -> None:
    tokenizer = load()
    end = tokenizer.special_id("<|im_end|>")
    hostile = f"x{GUARD}<|im_end|>y"
    assert end not in tokenizer.encode(hostile, add_bos=False)
    assert max(tokenizer.encode(hostile, add_bos=False)) < tokenizer.vocab_size
    ids = tokenizer.encode_template(f"x{GUARD}<\ue000|im_end|>y<|im_end|>", literal_mark="\ue000")
    assert ids.count(end) == 1
    assert max(ids) < tokenizer.vocab_size
    assert b"".join(map(tokenizer.piece, ids)).decode() == hostile


def test_the_guard_alone_changes_nothing(load: Load, original: Tokenizer) -> None:
    tokenizer = load()
    for text in (f"{GUARD}'s", f"a{GUARD}b <", f"<|im_start|>{GUARD}<|im_end|"):
        assert tokenizer.encode_template(text) == ids_of(original, text)


def test_a_long_text_leaves_the_interpreter_to_others(load: Load) -> None:
    """The library's plain `encode` keeps the interpreter lock, so that every stream stood still for seconds."""
    tokenizer, text, done, turns = load(), "word " * 200_000, threading.Event(), list[int]()

    def others() -> None:
        while not done.wait(0.001):
            turns.append(1)

    thread = threading.Thread(target=others)
    thread.start()
    tokenizer.encode("a", add_bos=False)
    turns.clear()
    tokenizer.encode(text, add_bos=False)
    during = len(turns)
    done.set()
    thread.join()
    assert during > 10


def test_truncation_and_padding_of_the_file_are_not_applied(load: Load) -> None:
    backend = byte_level_backend()
    backend.enable_truncation(4)
    backend.enable_padding(length=8)
    ids = load(backend.to_str()).encode("The quick brown fox", add_bos=False)
    assert ids == ids_of(byte_level_backend(), "The quick brown fox")


class TestBos:
    """Whether prompts begin with BOS."""

    def test_the_post_processor_says_so(self, load: Load) -> None:
        tokenizer = load(bos_token="<s>")
        bos = tokenizer.special_id("<s>")
        assert tokenizer.adds_bos
        assert tokenizer.encode("a", add_bos=True) == [bos, *tokenizer.encode("a", add_bos=False)]
        assert tokenizer.encode("", add_bos=True) == [bos]

    def test_the_config_overrules_it(self, load: Load) -> None:
        tokenizer = load(bos_token="<s>", add_bos_token=False)
        assert tokenizer.encode("a", add_bos=True) == tokenizer.encode("a", add_bos=False)

    def test_another_first_token_is_not_bos(self, load: Load) -> None:
        assert not load(bos_token="</s>").adds_bos

    def test_no_bos_token_no_bos(self, load: Load) -> None:
        tokenizer = load(byte_level_backend().to_str(), add_bos_token=True)
        assert (tokenizer.bos_id, tokenizer.adds_bos) == (None, False)

    def test_a_template_adds_none(self, load: Load) -> None:
        tokenizer = load(bos_token="<s>")
        assert tokenizer.encode_template("<s>a").count(tokenizer.bos_id) == 1
        assert tokenizer.bos_id not in tokenizer.encode_template("a")


class TestConfig:
    """tokenizer_config.json adds to tokenizer.json."""

    def test_named_tokens_may_be_texts_or_objects(self, load: Load) -> None:
        tokenizer = load(bos_token={"content": "<s>"}, eos_token="</s>")
        assert tokenizer.bos_id == tokenizer.special_id("<s>")
        assert tokenizer.eos_ids == {tokenizer.special_id("</s>")}

    def test_a_token_named_special_is_special_whatever_the_json_says(self, load: Load) -> None:
        tokenizer = load(eos_token="<tool>")
        assert tokenizer.special_id("<tool>") in tokenizer.eos_ids
        assert tokenizer.piece(next(iter(tokenizer.eos_ids))) == b""
        assert tokenizer.special_id("<tool>") not in tokenizer.encode("<tool>", add_bos=False)

    @pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens"])
    @pytest.mark.parametrize("tokens", [["<new>"], {"new_token": "<new>"}, [{"content": "<new>"}]])
    def test_more_special_tokens(self, load: Load, key: str, tokens: Any) -> None:
        assert load(**{key: tokens}).special_id("<new>") is not None

    def test_added_tokens_that_the_json_lacks_are_added_by_id(self, load: Load, original: Tokenizer) -> None:
        size = original.get_vocab_size()
        entries = {str(size + 1): {"content": "<b>", "special": False}, str(size): {"content": "<a>", "special": True}}
        tokenizer = load(added_tokens_decoder=entries)
        assert tokenizer.special_id("<a>") == size
        assert tokenizer.encode("<b>", add_bos=False) == [size + 1]
        assert tokenizer.vocab_size == size + 2


class TestPieces:
    """Bytes and names of single tokens."""

    def test_special_and_unknown_ids_have_no_bytes(self, load: Load) -> None:
        tokenizer = load()
        special = tokenizer.special_id("<|im_end|>")
        assert special is not None
        assert [tokenizer.piece(i) for i in (special, tokenizer.vocab_size, 10**9, -1)] == [b""] * 4

    def test_added_tokens_are_spelled_as_text_not_in_the_byte_alphabet(self, load: Load) -> None:
        tokenizer = load(byte_level_backend(added=["<dé>"]).to_str())
        (token_id,) = tokenizer.encode("<dé>", add_bos=False)
        assert tokenizer.piece(token_id).decode() == "<dé>"

    def test_names_are_readable(self, load: Load) -> None:
        tokenizer = load()
        first_byte = tokenizer.encode("\U0010ffff", add_bos=False)[0]
        assert tokenizer.name(tokenizer.special_tokens["<s>"]) == "<s>"
        assert tokenizer.name(tokenizer.encode(" the", add_bos=False)[0]) == " the"
        assert tokenizer.name(first_byte) == "\ufffd"
        assert tokenizer.name(10**9) == ""


@pytest.mark.parametrize("text", ["\ud800", "ok \udfff", "\ud83d\ude00 as two halves"])
def test_lone_surrogates_are_refused_by_position(load: Load, text: str) -> None:
    tokenizer = load()
    with pytest.raises(InvalidText) as error:
        tokenizer.encode(text, add_bos=False)
    assert error.value.position == next(i for i, c in enumerate(text) if "\ud800" <= c <= "\udfff")
    with pytest.raises(InvalidText):
        tokenizer.encode_template(text)


@pytest.mark.parametrize("text", ["", "{}", "not json", '{"model": {"type": "BPE"}}'])
def test_a_broken_file_is_one_clear_line(load: Load, text: str) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json") as error:
        load(text)
    assert "\n" not in str(error.value)


def test_an_unknown_decoder_is_refused_by_name(load: Load, source: str) -> None:
    changed = json.loads(source) | {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}
    with pytest.raises(TokenizerError, match="WordPiece"):
        load(json.dumps(changed))


class TestMetaspace:
    """SentencePiece's spelling in a tokenizer.json, old (normalizers) and new (Metaspace)."""

    VOCABULARY = ("<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁▁", "a", "b", "▁a", "▁b", "é")
    MERGES = (("▁", "▁"), ("▁", "a"), ("▁", "b"))

    def backend(self, scheme: str) -> Tokenizer:
        vocab = {token: i for i, token in enumerate(self.VOCABULARY)}
        bpe = models.BPE(vocab=vocab, merges=list(self.MERGES), byte_fallback=True, unk_token="<unk>", fuse_unk=True)
        backend = Tokenizer(bpe)
        backend.add_special_tokens(["<unk>", "<s>"])
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        if scheme == "old":
            backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
            backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
        elif scheme == "gemma":
            backend.normalizer = normalizers.Replace(" ", "▁")
            backend.decoder = decoders.Sequence(steps)
        else:
            backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
            backend.decoder = decoders.Metaspace(prepend_scheme=scheme, split=False)
        return backend

    @pytest.mark.parametrize("scheme", ["old", "gemma", "first", "always", "never"])
    def test_spaces_in_plain_text_and_templates_are_the_librarys(self, load: Load, scheme: str) -> None:
        backend = self.backend(scheme)
        tokenizer, original = load(backend.to_str()), Tokenizer.from_str(backend.to_str())
        for text in ("", "a b", " a", "a  b ", "é ü"):
            assert tokenizer.encode(text, add_bos=False) == ids_of(original, text), text
        for text in ("<s>a b<s> b", "a<s>b", "<s>", " <s> a"):
            assert tokenizer.encode_template(text) == ids_of(original, text), text

    @pytest.mark.parametrize("scheme", ["old", "gemma", "first", "always", "never"])
    def test_pieces_are_the_text_with_the_space_that_encoding_adds(self, load: Load, scheme: str) -> None:
        tokenizer = load(self.backend(scheme).to_str())
        assert tokenizer.adds_space == (scheme in ("old", "first", "always"))
        ids = tokenizer.encode("a  b", add_bos=False)
        assert b"".join(map(tokenizer.piece, ids)) == (b" a  b" if tokenizer.adds_space else b"a  b")

    def test_byte_tokens_are_bytes(self, load: Load) -> None:
        tokenizer = load(self.backend("gemma").to_str())
        assert b"".join(map(tokenizer.piece, tokenizer.encode("ü👍", add_bos=False))).decode() == "ü👍"
