"""The socket and the keys: in order before anything is fetched, or one clear line."""

import socket
from pathlib import Path

import pytest

from server.config import EngineConfig, ServerConfig
from server.door import DoorError, bind, listen, read_keys, url


def config(key: str | None = None, file: Path | None = None) -> ServerConfig:
    return ServerConfig(model="m", engine=EngineConfig(model_path="m"), api_key=key, api_key_file=file)


def test_port_0_takes_a_free_one() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0


def test_a_port_that_somebody_listens_on_is_refused_by_number() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(DoorError, match=rf"127\.0\.0\.1 port {port}: .*in use.*--port"):
            bind("127.0.0.1", port)


def test_of_two_that_bound_the_same_port_only_the_first_to_listen_gets_it() -> None:
    with bind("127.0.0.1", 0) as first, bind("127.0.0.1", first.getsockname()[1]) as second:
        listen(first)
        with pytest.raises(DoorError, match="in use"):
            listen(second)


def test_nobody_can_connect_before_listen() -> None:
    with bind("127.0.0.1", 0) as listener:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(listener.getsockname())
        listen(listener)
        socket.create_connection(listener.getsockname()).close()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "256.0.0.1", "203.0.113.1", "a..b", "a" * 64 + ".invalid"])
def test_a_host_that_is_not_this_machine_is_one_line(host: str) -> None:
    with pytest.raises(DoorError, match=f"can't listen on {host} port 8000: ") as found:
        bind(host, 8000)
    assert "\n" not in str(found.value)


def test_the_url_is_one_that_works_from_this_machine() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
    with bind("0.0.0.0", 0) as listener:
        assert url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6")
@pytest.mark.parametrize("host", ["::1", "::"])
def test_an_ipv6_address_is_put_in_brackets(host: str) -> None:
    with bind(host, 0) as listener:
        assert url(listener) == f"http://[::1]:{listener.getsockname()[1]}"


def test_without_keys_the_server_is_open() -> None:
    assert read_keys(config()) == ()


def test_keys_of_both_sources_open(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# a comment\none\n\n  two\t\n#off\n")
    assert read_keys(config("zero", file)) == ("zero", "one", "two")


@pytest.mark.parametrize("content", ["", "\n\n", "# only comments\n"])
def test_a_file_without_a_key_is_a_mistake_and_not_an_open_door(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(DoorError, match="has no key"):
        read_keys(config(file=file))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DoorError, match=r"KVELL_API_KEY_FILE.*missing: No such file"):
        read_keys(config(file=tmp_path / "missing"))


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(DoorError, match="not UTF-8"):
        read_keys(config(file=file))


@pytest.mark.parametrize("key", ["schlüssel", "a\tb", " x", "x ", "a\x7f"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(DoorError) as found:
        read_keys(config(key))
    assert key not in str(found.value)
