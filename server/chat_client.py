"""`kvell chat`: a conversation in the terminal with a running server, over HTTP like any other client.

Knows the public API only. Ctrl-C stops a reply (the connection closes, and the server stops computing it).
"""

import json
import unicodedata
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

import httpx
from rich.console import Console

HELP = "/clear begins anew, /system TEXT sets the system message, /exit or Ctrl-D leaves, Ctrl-C stops a reply"

Turn = dict[str, str]


class ChatFailed(httpx.HTTPError):
    """The server said no, or something that is no answer. One line."""


class Chat:
    """One conversation: the turns so far and the server that continues them."""

    def __init__(self, client: httpx.Client, model: str, *, system: str | None = None) -> None:
        self.model = model
        self.system = system
        self.turns: list[Turn] = []
        self._client = client

    def ask(self, text: str) -> Generator[str, None, None]:
        """Send a user's turn; the reply's pieces as they come. What was said so far stays, also when it is stopped.

        Raises httpx.HTTPError; the turn is then forgotten unless a part of the reply had come.
        """
        said = ""
        self.turns.append({"role": "user", "content": text})
        try:
            for piece in self._pieces():
                said += piece
                yield piece
        finally:
            if said:
                self.turns.append({"role": "assistant", "content": said})
            else:
                self.turns.pop()

    def clear(self) -> None:
        """Begin anew; the system message stays."""
        self.turns.clear()

    def _pieces(self) -> Iterator[str]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        body = {"model": self.model, "stream": True, "messages": system + self.turns}
        with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                response.read()
                raise ChatFailed(reason(response))
            for line in response.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                yield _content(line.removeprefix("data: "))


def _content(event: str) -> str:
    """What an event adds to the reply. Raises ChatFailed with the server's error, and for what is no such event."""
    try:
        chunk = json.loads(event)
        if "error" in chunk:
            raise ChatFailed(str(chunk["error"]["message"]))
        return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ChatFailed(f"the server sent what is no part of a reply: {event[:80]!r}") from None


def reason(response: httpx.Response) -> str:
    """Why the server refused, as it says itself."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered with status {response.status_code}"


def printable(text: str) -> str:
    """Without control characters but line breaks and tabs: what a model says must not steer the terminal."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf") or c == "\u200d")


def typed(text: str) -> str:
    """What was typed or given, as text: bytes that are no UTF-8, which Python smuggles through, become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def first_model(client: httpx.Client) -> str:
    """The model that the server has. Raises ChatFailed."""
    response = client.get("/v1/models")
    if response.status_code != 200:
        raise ChatFailed(reason(response))
    try:
        return str(response.json()["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        raise ChatFailed(
            f"what answers at {client.base_url} is no server for chats: it has no list of models"
        ) from None


def base_of(url: str) -> str:
    """The server's address without the API's path. Raises ChatFailed for what can't be one."""
    try:
        httpx.URL(url).host.encode("idna")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ChatFailed(f"{url!r} is no address of a server: {error}") from None
    return url.rstrip("/").removesuffix("/v1")


def run(
    url: str,
    *,
    api_key: str | None,
    model: str | None,
    system: str | None,
    read: Callable[[str], str] = input,
    transport: httpx.BaseTransport | None = None,
) -> None:
    """Converse until the user leaves. Raises httpx.HTTPError when the server can't be reached at all."""
    console = Console(highlight=False)
    headers = {b"authorization": f"Bearer {api_key}".encode(errors="replace")} if api_key else {}
    base = base_of(url)
    # no limit on reading: a long prompt on a slow machine may take minutes before its first token
    timeout = httpx.Timeout(10, read=None)
    with httpx.Client(base_url=base, headers=headers, timeout=timeout, transport=transport) as client:
        try:
            chat = Chat(client, typed(model or first_model(client)), system=system and typed(system))
        except httpx.ConnectError as error:
            raise ChatFailed(f"no server answers at {base} ({error}); start one with: kvell serve") from None
        console.print(f"{chat.model} at {base}. {HELP}.", style="dim", markup=False)
        with suppress(EOFError):
            while _turn(chat, read, console):
                pass


def _turn(chat: Chat, read: Callable[[str], str], console: Console) -> bool:
    """One line of the user and what follows from it; False to leave."""
    try:
        line = typed(read("> ").strip())
    except KeyboardInterrupt:
        console.print("\n(Ctrl-D leaves)", style="dim")
        return True
    command, _, rest = line.partition(" ")
    if command == "/exit":
        return False
    if command == "/clear":
        chat.clear()
    elif command == "/system":
        chat.system = rest.strip() or None
    elif command.startswith("/"):
        console.print(HELP, style="dim", markup=False)
    elif line:
        _reply(chat, line, console)
    return True


def _reply(chat: Chat, line: str, console: Console) -> None:
    pieces = chat.ask(line)
    try:
        for piece in pieces:
            console.print(printable(piece), end="", markup=False, soft_wrap=True)
        console.print()
    except KeyboardInterrupt:
        console.print("\n(stopped)", style="dim")
    except httpx.HTTPError as error:
        console.print(f"\n{error}", style="red", markup=False)
    finally:
        pieces.close()
