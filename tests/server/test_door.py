"""The socket and the keys: in order before anything is fetched, or one clear line."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from server.config import EngineConfig, ServerConfig
from server.door import DoorError, bind, check_certificate, listen, url
from tests.helpers.certificates import Certificate


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


def tls(cert: Path | None, key: Path | None) -> ServerConfig:
    return replace(ServerConfig(model="m", engine=EngineConfig(model_path="m")), tls_certfile=cert, tls_keyfile=key)


def test_a_certificate_and_its_key_are_checked_before_anything_is_fetched(certificate: Certificate) -> None:
    check_certificate(tls(None, None))
    check_certificate(tls(certificate.cert, certificate.key))
    with pytest.raises(DoorError, match=r"can't use --tls-certfile .*cert\.pem with --tls-keyfile .*cert\.pem"):
        check_certificate(tls(certificate.cert, certificate.cert))
    with pytest.raises(DoorError, match="No such file"):
        check_certificate(tls(certificate.cert, certificate.key.with_name("missing")))


def test_with_tls_the_url_says_so() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert url(listener, tls=True).startswith("https://127.0.0.1:")
