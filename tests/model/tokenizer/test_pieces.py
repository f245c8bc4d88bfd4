import pytest

from model.tokenizer import pieces


def test_the_byte_alphabet_has_every_byte_once() -> None:
    assert sorted(pieces.BYTES_BY_CHARACTER.values()) == list(range(256))


def test_byte_level_tokens_are_bytes_of_that_alphabet() -> None:
    assert pieces.byte_level("Ġthe") == b" the"
    assert pieces.byte_level("ðŁĺĢ").decode() == "😀"
    assert pieces.byte_level("Ċ") == b"\n"
    assert pieces.byte_level("日") == "日".encode()  # no character of the alphabet: spelled by hand


@pytest.mark.parametrize(
    ("token", "piece"),
    [
        ("▁the", b" the"),
        ("▁▁", b"  "),
        ("<0x0A>", b"\n"),
        ("<0xff>", b"\xff"),
        ("<0x0A>x", b"<0x0A>x"),
        ("é", b"\xc3\xa9"),
    ],
)
def test_sentencepiece_tokens(token: str, piece: bytes) -> None:
    assert pieces.metaspace_with_bytes(token) == piece
    assert pieces.metaspace(token) == (token.replace("▁", " ").encode())
