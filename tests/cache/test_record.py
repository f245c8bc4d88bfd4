"""A record is taken only when root, tokens, lengths, version, key and checksum are all what they should be."""

from random import Random

import pytest

from cache.record import HEADER, MAGIC, BadRecord, Names, Wanted, decode, encode, packed, root_of

KEY = bytes(range(32))
ROOT = root_of(["model", "bf16"], "alice", "salt")
TOKENS = tuple(range(100, 132))
PAYLOAD = Random(0).randbytes(500)
WANTED = Wanted(ROOT, TOKENS, len(PAYLOAD))


def record(key: bytes = KEY, root: bytes = ROOT, tokens: tuple[int, ...] = TOKENS, payload: bytes = PAYLOAD) -> bytes:
    return b"".join(encode(key, root, tokens, memoryview(payload)))


def test_what_was_written_is_read() -> None:
    assert decode(KEY, record(), WANTED) == PAYLOAD


def test_every_single_flipped_bit_is_noticed() -> None:
    sound = record()
    for place in range(len(sound)):
        bad = bytearray(sound)
        bad[place] ^= 1 << place % 8
        with pytest.raises(BadRecord):
            decode(KEY, bytes(bad), WANTED)


def test_every_other_length_is_noticed() -> None:
    sound = record()
    for length in (*range(0, len(sound), 7), len(sound) - 1):
        with pytest.raises(BadRecord):
            decode(KEY, sound[:length], WANTED)
    with pytest.raises(BadRecord, match="announced"):
        decode(KEY, sound + b"\0", WANTED)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (record(tokens=(*TOKENS[:-1], 7)), "other tokens"),
        (record(tokens=(7, *TOKENS[1:])), "other tokens"),
        (record(tokens=TOKENS[16:]), "other tokens"),
        (record(root=root_of(["model", "bf16"], "bob", "salt")), "owner"),
        (record(key=bytes(32)), "checksum"),
        (record(payload=PAYLOAD[:-1]), "keys and values"),
        (record().replace(MAGIC, b"KVELLBL0"), "version"),
        (b"", "too short"),
    ],
)
def test_a_sound_record_of_something_else_is_refused(bad: bytes, why: str) -> None:
    with pytest.raises(BadRecord, match=why) as caught:
        decode(KEY, bad, WANTED)
    assert not any(str(token) in str(caught.value) for token in TOKENS)


def test_a_length_that_is_a_lie_is_no_way_out_of_the_record() -> None:
    header = HEADER.pack(MAGIC, 2**32 - 1, 2**32 - 1, 2**63)
    with pytest.raises(BadRecord, match="announced"):
        decode(KEY, header + bytes(100), WANTED)


def test_roots_differ_whenever_anything_in_them_does() -> None:
    roots = [
        root_of(form, namespace, salt)
        for form in (["a", "b"], ["ab"], ["a", "c"])
        for namespace in ("", "x", 'x", "y')
        for salt in ("", "x", "y")
    ]
    assert len(set(roots)) == len(roots)


def names(tokens: list[int], key: bytes = KEY, root: bytes = ROOT) -> Names:
    return Names(key, root, tokens, 4)


def test_a_name_depends_on_key_root_and_every_token_up_to_its_end() -> None:
    tokens = list(range(12))
    its = names(tokens)
    assert [len(its[index]) for index in (2, 0, 1)] == [64, 64, 64]
    assert names(tokens, key=bytes(32))[0] != its[0]
    assert names(tokens, root=b"other")[0] != its[0]
    for place in range(12):
        changed = [*tokens]
        changed[place] += 1
        assert [names(changed)[index] == its[index] for index in range(3)] == [place >= 4 * (i + 1) for i in range(3)]


def test_names_follow_a_list_that_grows_and_never_name_half_a_block() -> None:
    tokens = [1, 2, 3]
    its = names(tokens)
    with pytest.raises(AssertionError, match="3 of 4"):
        its[0]
    tokens += [4, 5]
    assert its[0] == names([1, 2, 3, 4])[0]
    assert its.prefix(0) == [1, 2, 3, 4]


def test_tokens_take_four_bytes_each() -> None:
    assert packed([1, 2**32 - 1]) == b"\1\0\0\0\xff\xff\xff\xff"
