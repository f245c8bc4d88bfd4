import pytest
from sentencepiece import SentencePieceProcessor

from model.tokenizer import spm_proto
from model.tokenizer.base import TokenizerError
from model.tokenizer.spm_proto import PieceType

TOKENS = ["<unk>", "<s>", "a", "b", "ab", "▁", "long" * 60, "é" * 100]
TYPES = [2, 3, 1, 1, 1, 1, 1, 1]
SCORES = [0.0, 0.0, -3.0, -4.0, -1.5, -2.0, -0.25, -7.0]


def model(**changes: object) -> bytes:
    settings: dict[str, object] = {"add_dummy_prefix": False, "remove_extra_whitespaces": False}
    ids = {"unk": 0, "bos": 1}
    return spm_proto.bpe_model(TOKENS, SCORES, TYPES, ids=ids, **(settings | changes))  # type: ignore[arg-type]


def load(proto: bytes) -> SentencePieceProcessor:
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(proto)
    return processor


def test_what_is_written_is_what_sentencepiece_reads() -> None:
    sp = load(model())
    ids = range(len(TOKENS))
    assert [sp.id_to_piece(i) for i in ids] == TOKENS
    assert [sp.get_score(i) for i in ids] == SCORES
    assert [sp.is_unknown(i) for i in ids] == [kind == PieceType.UNKNOWN for kind in TYPES]
    assert [sp.is_control(i) for i in ids] == [kind == PieceType.CONTROL for kind in TYPES]
    assert (sp.unk_id(), sp.bos_id(), sp.eos_id(), sp.pad_id()) == (0, 1, -1, -1)


def test_it_merges_by_score() -> None:
    assert load(model()).encode("abab", out_type=str) == ["ab", "ab"]


@pytest.mark.parametrize(("setting", "pieces"), [(True, ["▁", "a"]), (False, ["a"])])
def test_the_space_before_a_text_is_a_setting_and_can_be_switched_off(setting: bool, pieces: list[str]) -> None:
    proto = model(add_dummy_prefix=setting)
    assert load(proto).encode("a", out_type=str) == pieces
    assert load(proto + spm_proto.NO_DUMMY_PREFIX).encode("a", out_type=str) == ["a"]


def test_extra_spaces_are_kept_unless_the_model_removes_them() -> None:
    assert load(model()).encode("  a", out_type=str) == ["▁", "▁", "a"]
    assert load(model(remove_extra_whitespaces=True)).encode("  a", out_type=str) == ["a"]


def test_tokens_are_retyped_and_appended_and_gaps_are_unused() -> None:
    changes = {4: ("ab", PieceType.CONTROL), 8: ("x y", PieceType.USER_DEFINED), 10: ("<new>", PieceType.CONTROL)}
    sp = load(spm_proto.with_tokens(model(), len(TOKENS), changes))
    assert sp.get_piece_size() == 11
    assert sp.encode("ab", out_type=str) == ["a", "b"]
    assert sp.encode("ax y", out_type=int) == [2, 8]
    assert [sp.is_control(4), sp.is_unused(9), sp.is_control(10)] == [True, True, True]


def test_nothing_to_change_leaves_the_bytes_alone() -> None:
    assert spm_proto.with_tokens(model(), len(TOKENS), {}) == model()


@pytest.mark.parametrize("data", [b"\x0b", b"\x0a\xff", b"\x0f\x00"])
def test_bytes_that_are_no_model_are_refused(data: bytes) -> None:
    with pytest.raises(TokenizerError, match="not a SentencePiece model"):
        spm_proto.with_tokens(data, 8, {0: ("a", PieceType.CONTROL)})
