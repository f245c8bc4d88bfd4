"""`kvell chat` against the real API over a fake engine: what is sent, shown, remembered and forgotten."""

import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from server.chat_client import Chat, ChatFailed, run


class Server(httpx.BaseTransport):
    """Answers chats with a fixed stream and keeps the bodies."""

    def __init__(self, *pieces: str, status: int = 200, error: str | None = None) -> None:
        self.pieces = pieces
        self.status = status
        self.error = error
        self.asked: list[dict[str, object]] = []
        self.keys: list[str | None] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers.get("authorization"))
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "tiny"}]})
        self.asked.append(json.loads(request.read()))
        if self.status != 200:
            return httpx.Response(self.status, json={"error": {"message": self.error}})
        return httpx.Response(200, stream=Events(self._events()))

    def _events(self) -> Iterator[bytes]:
        yield b": ping\n\n"
        for delta in ({"role": "assistant", "content": ""}, *({"content": piece} for piece in self.pieces), {}):
            yield f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()
        if self.error:
            yield f"data: {json.dumps({'error': {'message': self.error}})}\n\n".encode()
        yield b"data: [DONE]\n\n"


class Events(httpx.SyncByteStream):
    def __init__(self, events: Iterator[bytes]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[bytes]:
        return self._events


def client(server: Server) -> httpx.Client:
    return httpx.Client(transport=server, base_url="http://server")


def test_a_conversation_is_sent_whole_each_time() -> None:
    server = Server("Hel", "lo")
    chat = Chat(client(server), "tiny", system="be brief")
    assert "".join(chat.ask("hi")) == "Hello"
    assert "".join(chat.ask("again")) == "Hello"
    assert server.asked[1] == {
        "model": "tiny",
        "stream": True,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "again"},
        ],
    }


def test_a_reply_that_is_stopped_stays_in_the_conversation_as_far_as_it_came() -> None:
    chat = Chat(client(Server("Hel", "lo")), "tiny")
    pieces = chat.ask("hi")
    assert next(piece for piece in pieces if piece) == "Hel"
    pieces.close()
    assert chat.turns == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hel"}]


def test_a_refused_turn_is_forgotten_and_the_reason_is_the_server_s() -> None:
    chat = Chat(client(Server(status=400, error="too long")), "tiny")
    with pytest.raises(ChatFailed, match="too long"):
        list(chat.ask("hi"))
    assert chat.turns == []


def test_an_error_in_the_middle_keeps_what_came() -> None:
    chat = Chat(client(Server("Hel", error="the engine died")), "tiny")
    with pytest.raises(ChatFailed, match="the engine died"):
        list(chat.ask("hi"))
    assert chat.turns[-1] == {"role": "assistant", "content": "Hel"}


def types(*lines: str | type[BaseException]) -> Callable[[str], str]:
    """A person at the keyboard, who leaves with Ctrl-D."""
    left = list(lines)

    def read(prompt: str) -> str:
        line = left.pop(0) if left else EOFError
        if isinstance(line, str):
            return line
        raise line

    return read


def converse(server: Server, *lines: str | type[BaseException], **given: str | None) -> None:
    options = {"api_key": None, "model": None, "system": None} | given
    run("http://server/v1", **options, read=types(*lines), transport=server)  # type: ignore[arg-type]


def test_what_is_typed_is_asked_and_the_reply_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server("Hel", "lo [b]there[/b]")
    converse(server, "hi")
    assert server.asked[0]["model"] == "tiny"
    assert "Hello [b]there[/b]" in capsys.readouterr().out


def test_what_the_model_says_can_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    converse(Server("a\x1b[31mb\x07\x9b\u202e", "c\n👩‍👩‍👧‍👦"), "hi")
    assert "\na[31mbc\n👩‍👩‍👧‍👦\n" in capsys.readouterr().out


def test_empty_lines_ask_nothing() -> None:
    server = Server("x")
    converse(server, "", "   ")
    assert server.asked == []


def test_clear_forgets_and_system_sets(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server("x")
    converse(server, "one", "/clear", "/system be kind", "two", "/system", "/clear", "three")
    assert [[turn["content"] for turn in body["messages"]] for body in server.asked] == [  # type: ignore[attr-defined]
        ["one"],
        ["be kind", "two"],
        ["three"],
    ]


def test_exit_leaves_and_an_unknown_command_explains(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server("x")
    converse(server, "/what", "/exit", "never")
    assert server.asked == []
    assert capsys.readouterr().out.count("/system TEXT") == 2


def test_ctrl_c_at_the_prompt_does_not_leave() -> None:
    server = Server("x")
    converse(server, KeyboardInterrupt, "hi")
    assert len(server.asked) == 1


def test_ctrl_c_stops_a_reply_and_the_conversation_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(Server):
        def _events(self) -> Iterator[bytes]:
            yield from (event for number, event in enumerate(super()._events()) if number < 3)
            raise KeyboardInterrupt

    server = Interrupted("Hel", "lo")
    converse(server, "hi", "again")
    assert capsys.readouterr().out.count("Hel\n(stopped)") == 2
    assert server.asked[1]["messages"][1] == {"role": "assistant", "content": "Hel"}  # type: ignore[index]


def test_an_error_is_shown_and_the_conversation_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    converse(Server(status=503, error="try later"), "hi", "again")
    assert capsys.readouterr().out.count("try later") == 2


def test_the_key_goes_along() -> None:
    server = Server("x")
    converse(server, "hi", api_key="sesame")
    assert server.keys == ["Bearer sesame", "Bearer sesame"]


def test_a_named_model_is_asked_without_looking() -> None:
    server = Server("x")
    converse(server, "hi", model="other")
    assert server.asked[0]["model"] == "other"
    assert len(server.keys) == 1


def test_a_server_that_is_not_there_is_said_in_one_line() -> None:
    class Nobody(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("connection refused")

    with pytest.raises(ChatFailed, match="no server answers at http://server"):
        run("http://server", api_key=None, model=None, system=None, read=types(), transport=Nobody())


@pytest.mark.parametrize(("status", "body"), [(500, b"oops"), (401, b'{"error": "x"}'), (404, b"[]")])
def test_a_refusal_that_is_not_in_the_usual_shape_is_its_status(status: int, body: bytes) -> None:
    class Odd(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(status, content=body)

    with pytest.raises(ChatFailed, match=str(status)):
        run("http://server", api_key=None, model=None, system=None, read=types(), transport=Odd())
