"""Keys: where they come from, how a request carries them, what a mistake in the file says."""

import base64
import hmac
from pathlib import Path

import pytest

from server.config import EngineConfig, ServerConfig
from server.keys import Key, KeyFileError, KeyLimits, KeyRing, read_keys


def config(key: str | None = None, file: Path | None = None) -> ServerConfig:
    return ServerConfig(model="m", engine=EngineConfig(model_path="m"), api_key=key, api_key_file=file)


def file_with(tmp_path: Path, content: str) -> ServerConfig:
    file = tmp_path / "keys"
    file.write_text(content)
    return config(file=file)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_without_keys_the_server_is_open() -> None:
    assert read_keys(config()) == ()
    assert not len(KeyRing(lambda: ()))


def test_keys_of_both_sources_open_each_with_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# a comment\nteam-a: one max-waiting-requests=3 weight=2\n\n  two\t\n#off\nteam-b: sk:odd\n")
    assert read_keys(config("zero", file)) == (
        Key("default", b"zero"),
        Key("team-a", b"one", KeyLimits(max_waiting_requests=3, weight=2)),
        Key("line-4", b"two"),
        Key("team-b", b"sk:odd"),
    )


def test_an_owner_may_have_two_keys_so_that_one_can_go(tmp_path: Path) -> None:
    assert [key.secret for key in read_keys(file_with(tmp_path, "a: old\na: new\n"))] == [b"old", b"new"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "has no key"),
        ("\n\n", "has no key"),
        ("# only comments\n", "has no key"),
        ("a: k\nb:  \n", "line 2: an API key may have"),
        ("a b: k\n", "line 1: what follows the key are limits"),
        ("bob schl-1\n", "a name before the key ends with ':'"),
        ("bob schl1==\n", "a name before the key ends with ':'"),
        ("bob: weight=2 schl-1\n", "a name before the key ends with ':'"),
        ("ä: k\n", "line 1: a name has"),
        ("a: k speed=3\n", "as weight=2; known: max-waiting-requests, max-waiting-tokens, weight;"),
        ("a: k weight=0\n", "line 1: weight is '0'; allowed: a whole number of 1 to 1000"),
        ("a: k max-waiting-tokens=-1\n", "line 1: max-waiting-tokens is '-1'; allowed: a whole number"),
        ("a: k weight=2\na: l\n", "the keys of 'a' have different limits"),
        ("a: schl-1\nb: schl-1\n", "'a' and 'b' have the same key"),
        ("a: schl\u00fcssel\n", "line 1: an API key may have"),
    ],
)
def test_a_mistake_in_the_file_is_named_and_no_key_is_shown(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(KeyFileError) as found:
        read_keys(file_with(tmp_path, content))
    assert said in str(found.value)
    assert "schl" not in str(found.value)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"KVELL_API_KEY_FILE.*missing: No such file"):
        read_keys(config(file=tmp_path / "missing"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(KeyFileError, match="not UTF-8"):
        read_keys(config(file=tmp_path / "binary"))


@pytest.mark.parametrize("key", ["schlüssel", "a\tb", " x", "x ", "a\x7f"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(KeyFileError) as found:
        read_keys(config(key))
    assert key not in str(found.value)


RING = KeyRing(lambda: (Key("a", b"one"), Key("b", b"two:2")))


@pytest.mark.parametrize(
    ("headers", "owner"),
    [
        ({"authorization": "Bearer one"}, "a"),
        ({"authorization": "bearer  one "}, "a"),
        ({"x-api-key": "one"}, "a"),
        ({"authorization": basic("anybody", "one")}, "a"),
        ({"authorization": basic("", "two:2")}, "b"),
        ({"authorization": "Bearer wrong", "x-api-key": "one"}, "a"),
        ({}, None),
        ({"authorization": "one"}, None),
        ({"authorization": "Basic one"}, None),
        ({"authorization": "Basic " + base64.b64encode(b"one").decode()}, None),
        ({"authorization": basic("one", "")}, None),
        ({"authorization": "Basic ####"}, None),
        ({"authorization": "Bearer "}, None),
        ({"x-api-key": ""}, None),
        ({"x-api-key": "ONE"}, None),
        ({"authorization": "Bearer \u20ac"}, None),
    ],
)
def test_a_key_is_taken_in_three_forms(headers: dict[str, str], owner: str | None) -> None:
    found = RING.find(headers)
    assert (found and found.name) == owner


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda given, key: compared.append(key) or given == key)
    assert RING.find({"x-api-key": "one"}) is not None
    assert compared == [b"one", b"two:2"]


def test_reading_again_takes_what_is_new_and_keeps_the_old_when_it_can_not(tmp_path: Path) -> None:
    settings = file_with(tmp_path, "a: one\n")
    ring = KeyRing(lambda: read_keys(settings))
    (tmp_path / "keys").write_text("a: two\n")
    assert ring.find({"x-api-key": "two"}) is None
    ring.reload()
    assert ring.find({"x-api-key": "one"}) is None
    assert ring.find({"x-api-key": "two"}) is not None
    (tmp_path / "keys").write_text("")
    with pytest.raises(KeyFileError):
        ring.reload()
    assert ring.find({"x-api-key": "two"}) is not None
