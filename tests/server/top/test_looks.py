"""Looks through the life of a server: it is away, comes, is full, goes and comes again, or is something else."""

from collections.abc import Iterator

import httpx
import msgspec
import pytest

from server.top.looks import Look, NoConnection, WatchFailed, first_look, watched
from tests.helpers.live_looks import AT_WORK, IDLE


class Lives(httpx.BaseTransport):
    """Each request meets the next of these: a list of looks, a status, or an error."""

    def __init__(self, *lives: list[dict[str, object]] | int | Exception) -> None:
        self.lives = list(lives)
        self.kind = "text/event-stream; charset=utf-8"

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/live"
        life = self.lives.pop(0)
        if isinstance(life, Exception):
            raise life
        if isinstance(life, int):
            return httpx.Response(life, json={"error": {"message": f"because {life}"}})
        body = b"".join(b"data: " + msgspec.json.encode(look) + b"\n\n" for look in life)
        return httpx.Response(200, headers={"content-type": self.kind}, content=b": ping\n\n" + body)


def seen(transport: Lives) -> Iterator[Look | NoConnection]:
    with httpx.Client(transport=transport, base_url="http://a") as client:
        yield from watched(client, pause=lambda seconds: bool(transport.lives))


def test_it_goes_on_when_the_server_comes_again() -> None:
    away = httpx.ConnectError("refused")
    found = list(seen(Lives(away, [IDLE, AT_WORK], 503, httpx.ReadTimeout("silent"), [IDLE])))
    kinds = [each.why if isinstance(each, NoConnection) else each.running for each in found]
    ended = "the server ended the stream"
    assert kinds == ["refused", 0, 2, ended, "because 503", "silent", 0, ended]


@pytest.mark.parametrize("status", [401, 404])
def test_a_refusal_is_the_end(status: int) -> None:
    with pytest.raises(WatchFailed, match=f"because {status}"):
        list(seen(Lives([IDLE], status, [IDLE])))


def test_something_else_is_the_end() -> None:
    with pytest.raises(WatchFailed, match="no kvell"):
        list(seen(Lives([{"hello": 1}], [IDLE])))


def test_a_page_of_another_server_is_no_stream_that_ended() -> None:
    transport = Lives([], [IDLE])
    transport.kind = "text/html; charset=utf-8"
    with pytest.raises(WatchFailed, match=r"no kvell: text/html$"):
        list(seen(transport))


@pytest.mark.parametrize(
    ("life", "why"), [(httpx.ConnectError("refused"), "kvell serve"), ([], "ended the stream"), (503, "because 503")]
)
def test_who_looks_once_is_told_at_once(life: list[dict[str, object]] | int | Exception, why: str) -> None:
    with httpx.Client(transport=Lives(life), base_url="http://a") as client, pytest.raises(WatchFailed, match=why):
        first_look(client)


def test_what_a_newer_server_says_more_is_no_trouble() -> None:
    with httpx.Client(transport=Lives([AT_WORK | {"news": [1]}]), base_url="http://a") as client:
        assert first_look(client).tokens_per_second.decode == 123.4
